"""Every integer of a range, shared out over the subtasks.

Duty: the bounded source that programs and tests begin with. Start reading: `source`.
"""
