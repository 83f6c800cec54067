"""The operators of one task: wiring, outputs, initial state and state reads."""
