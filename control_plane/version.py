"""The version of the control plane, as nodes and operators are told it."""

from typing import Final

VERSION: Final = "0.1.0"
