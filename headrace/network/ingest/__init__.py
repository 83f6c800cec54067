"""Rows pushed into a job from outside: the server that accepts them and the sender."""
