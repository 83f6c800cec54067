"""Stores one job's completed checkpoints: publishes and keeps them, and finds them after a restart."""
