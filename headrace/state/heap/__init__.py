"""Keyed state in memory: entries, handles, timers, and what ages."""
