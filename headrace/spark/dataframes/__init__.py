"""DataFrames in and out: pushed into source subtasks, committed by the driver."""
