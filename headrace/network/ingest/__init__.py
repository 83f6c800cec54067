"""Batches that come from outside of the job: the server that takes them and the sender."""
