"""What the agent must not forget: commands, attempts, checkpoints and events, in one local file."""
