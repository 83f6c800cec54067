"""Vectorised operators whose state is tables of columns: aggregates, whole rows that are extreme or first, and joins.

Aggregates: begin with `partials.py` (what they are made of), then `local_aggregate.py` before the exchange, and
`sliced_aggregate.py` and `session_aggregate.py` behind it.
Whole rows: `window_rows.py` holds both such halves, and the two selections that make rows stay of their window.
Joins: `matching.py` finds the rows of one key, for the joins of `row_join.py`.
Below them: `integer_groups.py` finds the groups of rows; `stored_rows.py` puts the hash of the key beside
rows that are kept.
"""
