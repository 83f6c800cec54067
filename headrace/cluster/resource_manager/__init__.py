"""Matches the slots that exist with the slots that are required, and asks the host for more.

Neighbours: JobMasters declare requirements, TaskExecutors report slots, a `driver` starts workers.
Start reading: `resource_manager`, then `slot_manager` and `slot_matching`.
"""
