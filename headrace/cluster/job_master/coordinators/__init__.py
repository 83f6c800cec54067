"""Operator coordinators: the parts of operators that run in the JobMaster, and their events."""
