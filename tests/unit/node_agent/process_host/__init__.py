"""The parts of the process host."""
