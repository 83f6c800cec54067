"""Sources and sinks, one folder per system.

Duty: implement the source and sink contracts of `functions` for external systems.
Neighbours: imports the ground.
Start reading: `datagen`.
"""
