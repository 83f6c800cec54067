"""Which subtask starts from which part of a snapshot."""
