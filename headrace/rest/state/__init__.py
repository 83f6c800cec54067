"""State of a job for the REST API: live from its tasks, stored in its snapshots, and edited into new savepoints.

Neighbours: `handlers/state` calls it, `models/state` has the shapes, and `state_processor` reads and edits snapshots.
Nothing here unpickles, and no path comes from a request: a snapshot is one that the job itself has reported.
"""
