"""Operators that see one record at a time: map, filter, process, broadcast, reduce; and columnar functions."""
