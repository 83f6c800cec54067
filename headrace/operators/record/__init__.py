"""Operators that handle one record at a time: map, filter, process, broadcast, reduce, asynchronous calls and joins."""
