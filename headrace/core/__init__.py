"""Words that everyone shares: ids, lifecycles, stream elements, batches, types, options, clock, errors.

No I/O and no threads of its own. Imports nothing else of this project. Start at `elements` and `record_batch`.
"""
