"""Schedules a job: its states and events, and the deployment of its executions."""
