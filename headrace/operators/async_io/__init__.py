"""Asynchronous functions: calls in flight, their order and their results."""
