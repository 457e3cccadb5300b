"""Tests of the metrics endpoint and of what stands behind gauges."""
