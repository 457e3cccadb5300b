"""The control plane: owns workflows, tasks, executions, nodes and their attempts."""
