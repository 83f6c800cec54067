"""Vectorised operators: aggregates of windows, selection of whole rows, and joins, on Arrow columns.

Windows: `window_assignment` finds the windows of rows and the late rows, and `window_results` emits fired windows.
Aggregates in one phase (any function, allowed lateness): `window_aggregate`, on `accumulator_table`.
Aggregates in two phases: `local_aggregate` before the exchange makes partial results (`partial_aggregates`);
`sliced_aggregate` and `session_aggregate` after it merge them.
Whole rows: `window_rows`. Joins: `row_join`, on `matching`. Grouping kernels of all of them: `integer_columns`.
"""
