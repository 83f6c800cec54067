"""Flow control: credits, the rows that may be in flight to a task, and how long rows wait for more."""
