"""What connects the rules of the control plane to the world."""
