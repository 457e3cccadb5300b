"""The agent's side of its session with the control plane."""
