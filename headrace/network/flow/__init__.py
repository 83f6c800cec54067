"""Flow control: credits, limits of rows in flight to a task, and the time for which rows are held back for a batch."""
