"""Do our queries give what DuckDB gives, row for row?

    python -m benchmarks.nexmark.check [q1 q2 ...] [--events 1000000] [--local] [--root DIRECTORY]

DuckDB comes in an environment of its own, which is made once. Exits with 1 where a result differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.queries import QUERIES

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-nexmark"
PACKAGE = "duckdb"


def peers_python() -> str:
    """Return an interpreter that has DuckDB, which is no part of our own environment."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"installing {PACKAGE} into {ENVIRONMENT.name}, once ...")
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    return str(python)


def check(query: str, events: Path, *, is_local: bool) -> dict[str, int]:
    """Run a query into files and compare them."""
    with tempfile.TemporaryDirectory() as out:
        program = [
            sys.executable,
            "-m",
            "benchmarks.nexmark.program",
            query,
            str(events),
            "--out",
            out,
        ]
        subprocess.run(
            [*program, "--local"] if is_local else program,
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        answers = [
            peers_python(),
            str(Path(__file__).with_name("answers.py")),
            query,
            str(events),
            out,
        ]
        done = subprocess.run(answers, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Check the queries named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queries", nargs="*", default=sorted(QUERIES))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    parser.add_argument("--local", action="store_true")
    arguments = parser.parse_args()
    events = events_directory(arguments.root, arguments.events)
    wrong = 0
    for query in arguments.queries:
        counts = check(query, events, is_local=arguments.local)
        is_right = counts["expected"] > 0 and not counts["missing"] and not counts["unexpected"]
        wrong += not is_right
        print(f"{query}: {'same' if is_right else 'DIFFERENT'} {counts}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
