"""The command line `tdp`: for people who submit, watch, operate and prove."""
