"""Keyed state: what a backend offers, and the backend that keeps it on the heap.

Duty: hold state by key and window, and find it under the key that is current. Nothing is snapshotted yet.
Neighbours: imports the ground; `operators` use it.
Start reading: `backend`, then `heap`.
"""
