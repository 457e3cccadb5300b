"""Mutated archives and pictures end in success or a typed refusal, within time and memory."""
