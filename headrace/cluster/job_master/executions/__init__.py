"""Attempts of subtasks as the JobMaster sees them."""
