"""The operators of one task: their wiring, outputs, initial state and reads of it."""
