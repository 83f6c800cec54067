"""Assignment of a snapshot's state to the subtasks that restore it."""
