"""Headrace as it is measured beside its peers: two TaskManagers that Spark hosts, exactly-once checkpoints.

The time is what the JobMaster says of the job, from submission to the end, deployment included; TaskManagers are there
before, as another query has run. Processors and memory are those of driver, JVM and workers.
"""

import sys
from pathlib import Path
from typing import Final

from benchmarks.nexmark.peers.measure import Figures, Measured, peer_main
from benchmarks.nexmark.program import TASK_MANAGERS, run_query
from benchmarks.nexmark.queries import QUERIES
from headrace.testing.minicluster_executor import MiniClusterExecutor

LOCAL: Final = "--local"


def run(query: str, events: Path, out: Path | None) -> Figures:
    """Run a query to its end."""
    with Measured() as measured:
        figures = run_query(query, events, out)
    return measured.figures(figures["net_runtime_ms"], checkpoints=figures["checkpoints"])


def main() -> None:
    """Run on Spark; with `--local` in this process alone."""
    packages = ["headrace", "pyspark"]
    if LOCAL in sys.argv:
        sys.argv.remove(LOCAL)
        with MiniClusterExecutor(slot_count=TASK_MANAGERS):
            peer_main(run, QUERIES, packages)
    else:
        peer_main(run, QUERIES, packages)


if __name__ == "__main__":
    main()
