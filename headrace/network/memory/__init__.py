"""Network memory: the buffers of a process, the pools that tasks take them from, and their sizes."""
