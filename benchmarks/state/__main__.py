"""Answers every question about keyed state, with the arguments' defaults: `python -m benchmarks.state`.

Each has a process of its own, so that nothing that one leaves in memory slows the next. About seven minutes on two idle
cores; then `python -m benchmarks.state.report`.
"""

import subprocess
import sys

QUESTIONS = ("access", "checkpoint", "restore", "back_pressure", "throughput")


def main() -> None:
    for question in QUESTIONS:
        print(f"-- {question}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.state.{question}"], check=True)


if __name__ == "__main__":
    main()
