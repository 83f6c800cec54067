"""Where does the processor time of a query go? Profiles of one of its TaskManagers, while it runs again and again.

    python -m benchmarks.nexmark.flame_graphs [q3 q5 q7 ...] [--events 5000000] [--seconds 15]

Keeps the stacks of each query below `benchmarks/results/flames/`; `python -m benchmarks.nexmark.report` draws them.
py-spy takes the samples from outside, 199 times a second; it comes into an environment of its own. Linux, and the
right to trace one's own children.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.nexmark.arguments import refuse_unknown
from benchmarks.nexmark.files import events_directory
from benchmarks.nexmark.flames import FLAMES, read_stacks, write_stacks
from benchmarks.nexmark.peers.measure import process_facts, read_tree
from benchmarks.nexmark.peers.setup import ROOT, programs_of
from benchmarks.nexmark.program import run_query

PROFILER: Final = ("py-spy==0.4.3",)
ENVIRONMENT: Final = ROOT / ".venv-profiler"
SAMPLES_PER_SECOND: Final = 199
PROFILED: Final = ("q3", "q5", "q7", "q11")


def spark_worker() -> int:
    """Return a process of this session in which Spark runs Python: a child of the daemon that forks them.

    RuntimeError where there is none.
    """
    daemons = {
        process
        for process in read_tree()
        if b"pyspark.worker" in Path(f"/proc/{process}/cmdline").read_bytes()
    }
    for process in sorted(daemons):
        parent, _ = process_facts(Path(f"/proc/{process}/stat").read_text())
        if parent in daemons:
            return process
    raise RuntimeError("no Python worker of Spark runs: a query has to run before")


def profile(profiler: Path, query: str, events: Path, seconds: int, kept: Path) -> int:
    """Run a query again and again while samples are taken, and keep them; return how often it ran. RuntimeError."""
    run_query(query, events, None)  # loads what the query needs
    runs = 0
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as said:
        raw = Path(directory, "raw")
        record = [str(profiler), "record", "--pid", str(spark_worker()), "--duration", str(seconds)]
        record += ["--rate", str(SAMPLES_PER_SECOND), "--function", "--format", "raw"]
        with subprocess.Popen([*record, "--output", str(raw)], stdout=said, stderr=said) as running:
            while running.poll() is None:
                run_query(query, events, None)
                runs += 1
        if running.returncode:
            said.seek(0)
            raise RuntimeError(f"py-spy could not look at {query}: {said.read().strip()}")
        kept.write_text(write_stacks(read_stacks(raw.read_text())))
    return runs


def main() -> None:
    """Profile what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark.flame_graphs",
        description=str(__doc__).partition("\n")[0],
    )
    parser.add_argument("queries", nargs="*", default=PROFILED)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()) / "nexmark")
    options = parser.parse_args()
    refuse_unknown(parser, options.queries)
    profiler = programs_of(ENVIRONMENT, PROFILER) / "py-spy"
    events = events_directory(options.root, options.events)
    FLAMES.mkdir(parents=True, exist_ok=True)
    for query in options.queries:
        kept = FLAMES / f"{query}.txt"
        runs = profile(profiler, query, events, options.seconds, kept)
        print(f"{kept}: {runs} runs of {query}, {options.events:,} events each", flush=True)


if __name__ == "__main__":
    main()
