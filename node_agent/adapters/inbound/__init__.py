"""Who asks the agent: the collector of metrics. All else it asks for itself."""
