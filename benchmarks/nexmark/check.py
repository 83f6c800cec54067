"""Do our queries give what DuckDB gives, row for row?

    python -m benchmarks.nexmark.check [q1 q2 ...] [--events 1000000] [--local] [--root DIRECTORY]

DuckDB comes in an environment of its own, which is made once (`peers/setup.py`). Exits with 1 where a result differs.
What was found is kept, and stands on the page of `benchmarks.nexmark.report`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.nexmark.arguments import events_argument, refuse_unknown
from benchmarks.nexmark.checks import KEPT
from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.peers.registry import HEADRACE, PEERS
from benchmarks.nexmark.peers.setup import ROOT
from benchmarks.nexmark.peers.turns import Figures, compared, is_same
from benchmarks.nexmark.queries import QUERIES
from benchmarks.record import append_result


def check(query: str, events: Path, *, is_local: bool) -> Figures:
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
        return compared(PEERS[HEADRACE], query, events, Path(out))


def main() -> None:
    """Check the queries named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark.check",
        description="Do our queries give what DuckDB gives, row for row? Exits with 1 where a result differs.",
    )
    parser.add_argument("queries", nargs="*", default=sorted(QUERIES), help="q1 q2 … (all)")
    parser.add_argument("--events", type=events_argument, default=1_000_000, help="(%(default)s)")
    parser.add_argument(
        "--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark",
        help="where the events lie, which are made once (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--local", action="store_true", help="in one process, without Spark")
    arguments = parser.parse_args()
    refuse_unknown(parser, arguments.queries)
    events = events_directory(arguments.root, arguments.events)
    wrong = 0
    for query in arguments.queries:
        counts = check(query, events, is_local=arguments.local)
        is_right = is_same(counts)
        wrong += not is_right
        asked = {"query": query, "events": arguments.events}
        host = {"host": "one process" if arguments.local else "spark"}
        append_result(KEPT, asked | host | counts)
        print(f"{query}: {'same' if is_right else 'DIFFERENT'} {counts}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
