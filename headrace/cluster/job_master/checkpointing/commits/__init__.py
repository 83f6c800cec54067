"""Commits of the output that sinks have prepared for published checkpoints."""
