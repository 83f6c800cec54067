"""Answers questions about keyed state, with their arguments' defaults: `python -m benchmarks.state [question …]`."""

from benchmarks.questions import ask

QUESTIONS = ("access", "checkpoint", "increments", "restore", "back_pressure", "throughput")

if __name__ == "__main__":
    ask(
        "benchmarks.state",
        QUESTIONS,
        "What do state and checkpoints cost? All takes about fifteen minutes on two idle cores.",
    )
