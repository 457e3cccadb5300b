"""The node agent: takes leased attempts and runs capabilities in child processes."""
