"""Programs for people: the command line, the development stack, generators and checks."""
