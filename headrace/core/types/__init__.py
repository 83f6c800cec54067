"""What a record is: declared types, rows, amounts of time, and the way between Python values and Arrow columns.

Neighbours: `headrace.core.record_batch` carries what is made here. Start at `type_info`, then `arrow_mapping`.
"""
