"""Accepts jobs, starts a JobMaster for each, and remembers their results.

Neighbours: `job_master` runs the job; `rest` and `spark` call it through its gateway.
Start reading: `dispatcher`.
"""
