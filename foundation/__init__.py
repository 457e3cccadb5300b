"""What every process shares and that knows no business word."""
