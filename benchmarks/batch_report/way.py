"""The program of a way to run a query, as a process: it runs it once for the answer, then once for the time.

    python -m benchmarks.batch_report.<way>_way QUERY SMALL LARGE

The first run warms up over the folder SMALL and collects its results, whose checksum is printed; the second one runs
over LARGE and throws its results away. Standard library only.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.batch_report.queries import checksum

Collect = Callable[[str, Path], Iterable[tuple[Any, ...]]]
Discard = Callable[[str, Path], float | None]
"""Returns the seconds of the job where its engine tells them, else None: the call is timed."""


def way_main(collect: Collect, discard: Discard) -> None:
    """Run both, and print a line of JSON."""
    query, small, large = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answer = checksum(collect(query, small))
    started = time.perf_counter()
    seconds = discard(query, large)
    took = time.perf_counter() - started
    print(json.dumps({"seconds": took if seconds is None else seconds, "answer": answer}))
