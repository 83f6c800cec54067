"""Asks every question of growth, with the arguments' defaults: `python -m benchmarks.growth [question …]`.

Each has a process of its own. About six minutes on two idle cores; then `python -m benchmarks.growth.report`.
"""

import subprocess
import sys

QUESTIONS = ("task_managers", "keys", "panes", "channels", "tasks")


def main() -> None:
    asked = sys.argv[1:] or list(QUESTIONS)
    unknown = sorted(set(asked) - set(QUESTIONS))
    if unknown:
        raise SystemExit(f"no question {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    failed: list[str] = []
    for question in asked:
        print(f"-- {question}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.growth.{question}"], check=False)
        if done.returncode:
            failed.append(question)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
