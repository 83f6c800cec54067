"""Words that everyone shares: ids, lifecycles, stream elements, batches, types, options, clock, errors.

Most are values and pure functions. The others are the one place where the process itself is touched, so that the rest
can be given something else in a simulation: `clock` and `randomness` read the machine, `threads` and `process` begin
threads and read memory, `security` reads files and makes keys, `entry_points` asks what is installed.
Imports nothing else of this project. Start at `elements` and `record_batch`.
"""
