"""Offers slots and runs tasks in them: the only link between control plane and data plane.

Neighbours: the only control-plane folder that imports `task`, `network`, `operators` and `state`.
Start reading: `task_executor`, then `task_slot_table` and `deployment`.
"""
