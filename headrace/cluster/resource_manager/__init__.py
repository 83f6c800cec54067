"""Matches existing slots with required ones, and requests more workers from the host.

Neighbours: JobMasters declare requirements, TaskExecutors report slots, a `driver` starts workers.
Start reading: `resource_manager`, then `slot_manager` and `slot_matching`.
"""
