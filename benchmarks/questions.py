"""Asks the questions of a benchmark one after another, each in a process of its own.

So nothing that one leaves in memory slows the next, and one that fails does not keep the others from being answered.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.record import LOAD_BEFORE, LOAD_VARIABLE


def ask(package: str, questions: Sequence[str], description: str) -> None:
    """Run the modules of `package` that the command line names, all of `questions` where it names none.

    Raises SystemExit with the names of those that failed, after the last has run.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=description,
        epilog=f"What one takes: python -m {package}.{questions[0]} --help. Then the page: python -m {package}.report",
    )
    parser.add_argument(
        "questions", nargs="*", metavar="question", help=f"{', '.join(questions)} (default: all)"
    )
    asked: list[str] = parser.parse_args().questions or list(questions)
    unknown = sorted(set(asked) - set(questions))
    if unknown:
        parser.error(f"no question {', '.join(unknown)}; there are {', '.join(questions)}")
    environment = os.environ | {LOAD_VARIABLE: str(LOAD_BEFORE)}
    failed: list[str] = []
    for question in asked:
        print(f"-- {question}", flush=True)
        command = [sys.executable, "-m", f"{package}.{question}"]
        if subprocess.run(command, check=False, env=environment).returncode:
            failed.append(question)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")
