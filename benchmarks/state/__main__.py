"""Answers every question about keyed state, with the arguments' defaults: `python -m benchmarks.state`."""

from benchmarks.state import access, checkpoint, restore

if __name__ == "__main__":
    access.main()
    checkpoint.main()
    restore.main()
