"""Decides what a failure restarts, and whether and when."""
