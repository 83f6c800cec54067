"""Answers questions of growth, with their arguments' defaults: `python -m benchmarks.growth [question …]`."""

from benchmarks.questions import ask

QUESTIONS = ("task_managers", "keys", "panes", "channels", "tasks")

if __name__ == "__main__":
    ask(
        "benchmarks.growth",
        QUESTIONS,
        "How does cost grow with TaskManagers, keys, panes, channels and tasks? "
        "All takes about six minutes on two idle cores.",
    )
