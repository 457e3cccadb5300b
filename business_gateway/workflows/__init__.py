"""The workflows that the gateway's orders run, to be published to the control plane."""
