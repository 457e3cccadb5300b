"""Scheduling: which node a step's attempt is proposed to, and why others are not."""
