"""Decides what runs: the states of a job, its events, and the deployment of its executions."""
