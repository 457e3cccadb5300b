"""Measures the platform on real processes: throughput, CPU, latency, idle costs, and the floor."""
