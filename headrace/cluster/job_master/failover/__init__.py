"""Decides whether and when a job restarts after a failure, and which subtasks restart."""
