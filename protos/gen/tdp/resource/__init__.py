"""Generated from the contracts; run `make protos` instead of editing."""
