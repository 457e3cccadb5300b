"""All tests of TDP."""
