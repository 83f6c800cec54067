"""Answers every question about keyed state, with the arguments' defaults: `python -m benchmarks.state`.

Each has a process of its own, so that nothing that one leaves in memory slows the next. About fifteen minutes on two
idle cores; then `python -m benchmarks.state.report`.
"""

import os
import subprocess
import sys

from benchmarks.record import LOAD_BEFORE, LOAD_VARIABLE

QUESTIONS = ("access", "checkpoint", "restore", "back_pressure", "throughput")


def main() -> None:
    environment = os.environ | {LOAD_VARIABLE: str(LOAD_BEFORE)}
    for question in QUESTIONS:
        print(f"-- {question}", flush=True)
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.state.{question}"], check=True, env=environment
        )


if __name__ == "__main__":
    main()
