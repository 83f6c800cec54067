"""Types of records: declared types, rows, amounts of time, and conversion between Python values and Arrow columns.

Neighbours: `headrace.core.record_batch` carries records of these types. Start at `type_info`, then `arrow_mapping`.
"""
