"""What stands behind `tdp capability`: projects, inputs, scaffolds, checks, hot reload."""
