"""Vectorised operators whose state is tables of columns: aggregates, whole rows that are extreme or first, and joins.

Aggregates: begin with `partials.py` (what they are made of), then `local_aggregate.py` and `local_session_aggregate.py`
before the exchange, `sliced_aggregate.py` and `session_aggregate.py` behind it.
Whole rows: `window_rows.py` holds both such halves; `row_selection.py` says what makes rows stay, and `extreme_rows.py`
and `ranked_rows.py` are the two there are. `local_operator.py` is what all halves before the exchange share.
Joins: `matching.py` finds the rows of one key, for `row_join.py` and `window_row_join.py`; `joined_columns.py` says
which columns a pair has.
Below them: `group_codes.py` and `integer_groups.py` find the groups of rows, by `packed_integers.py` and
`ordered_integers.py`; `hashed_rows.py` puts the hash of the key beside rows that are kept.
"""
