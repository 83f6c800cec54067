"""DataFrames as sources and sinks: pushed into source subtasks, committed by the driver."""
