"""Buffers: the network memory of a process, the pools that tasks take from, and how much there is."""
