"""Shared vocabulary: ids, lifecycles, stream elements, batches, types, options, clock, errors.

Most modules hold values and pure functions. The others are the only places that use the process itself, so that a
simulation can replace them: `clock` and `randomness` read the machine, `threads` and `process` begin threads and read
memory, `security` reads files and makes keys, `entry_points` finds installed plug-ins. Imports nothing else of this
project. Start at `elements` and `record_batch`.
"""
