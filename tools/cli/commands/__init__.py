"""One module for each command of `tdp`, imported only when it is used."""
