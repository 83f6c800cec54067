"""Nexmark: persons, auctions and bids, and the queries over them, against other engines on the same files.

Begin with `events.py` (what the rows are), then `queries.py` (the Headrace programs) and `answers.py`
(what DuckDB says).
"""
