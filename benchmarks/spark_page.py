"""How much later is a session of ours on Spark there with Spark's web page, and how long does the page then take?

By default the page starts when somebody first asks for it. Fresh interpreters take turns, with such a page and with
none at all, each way first in every second pair. What is timed is the call of `host_session`, which starts Spark's
JVM, by default from an archive of Spark's classes, which `headrace warm-up` makes; with `--cold` from none. Figures:
the medians of both ways in seconds, of the differences within pairs their median and quartiles, and `page_s`, how long
the page takes from the request to its first answer.

    python -m benchmarks.spark_page [--pairs 12] [--cold]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.record import record_result

_START: Final = """
import sys, time, urllib.request
from urllib.error import HTTPError
from headrace.core.config import Settings
from headrace.spark.session.session import host_session
given = {} if sys.argv[1] == "page" else {"spark.ui.enabled": "false"}
begun = time.perf_counter()
session = host_session(Settings({"headrace.spark.master": "local[2]", **given}))
took, page_s = time.perf_counter() - begun, 0.0
assert (session.page is not None) is (sys.argv[1] == "page")
if session.page is not None:
    asked = time.perf_counter()
    try:
        urllib.request.urlopen(session.page.address() + "/jobs/", timeout=60)
    except HTTPError as refusal:  # its filter misses a token
        assert refusal.code == 403
    page_s = time.perf_counter() - asked
session.stop()
print(took, page_s)
"""
_TIMEOUT_S: Final = 300


def start_s(way: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return how long a session takes to start in a fresh interpreter, and then its page. `way`: page or none."""
    done = subprocess.run(
        [sys.executable, "-c", _START, way],
        env=os.environ | dict(environment),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    took, page_s = map(float, done.stdout.splitlines()[-1].split())
    return took, page_s


def summary(pairs: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    """Return medians, and quartiles of how much longer the start with the page took within each pair."""
    low, middle, high = statistics.quantiles(
        [pair["page"][0] - pair["none"][0] for pair in pairs], n=4, method="inclusive"
    )
    figures = {
        "without_s": statistics.median(pair["none"][0] for pair in pairs),
        "with_s": statistics.median(pair["page"][0] for pair in pairs),
        "cost_s": middle,
        "cost_low_s": low,
        "cost_high_s": high,
        "page_s": statistics.median(pair["page"][1] for pair in pairs),
    }
    return {name: round(seconds, 3) for name, seconds in figures.items()}


def main() -> None:
    """Measure pairs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_page", description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache} if given.cold else {}
        pairs: list[dict[str, tuple[float, float]]] = []
        for number in range(given.pairs):
            order = ("page", "none") if number % 2 else ("none", "page")
            pairs.append({way: start_s(way, environment) for way in order})
    record_result("spark_page", {"pairs": given.pairs, "cold": given.cold} | summary(pairs))


if __name__ == "__main__":
    main()
