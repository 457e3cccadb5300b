"""Tests of the engine's driver without I/O."""
