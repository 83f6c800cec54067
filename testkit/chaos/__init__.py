"""Chaos: a job with a known answer is run while processes die, and what it committed is compared with that answer."""
