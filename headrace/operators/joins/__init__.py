"""Joins of two keyed streams: within windows (`window_join`), within an interval of time (`interval_join`)."""
