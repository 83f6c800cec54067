"""Windows: the general operator for any assigner, trigger and function, and vectorised built-in aggregates.

Start with `window_operator` (record at a time, the reference behaviour), then `aggregate_operator` (a batch at a time).
"""
