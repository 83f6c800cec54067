"""Keyed state in memory: entries, handles, timers and time to live."""
