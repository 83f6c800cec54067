"""From a task's gates to its operators: batches in turn, watermarks, debloating."""
