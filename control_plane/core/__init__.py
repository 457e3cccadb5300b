"""The rules of the control plane, free of any I/O library."""
