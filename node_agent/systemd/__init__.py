"""What systemd is told about the agent."""
