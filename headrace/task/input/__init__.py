"""Input of a task: reads its gates in turn, tracks watermarks, and limits rows in flight."""
