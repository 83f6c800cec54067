"""How does the history server grow with the archives that it shows?

Archives of `--small` and of `--large` jobs are written, each with the same answers, and served in turns, each time by
a fresh process. Figures of both, by name and count: seconds until all are listed, without and with the list that an
earlier server kept; seconds of `/jobs/overview` over HTTP, when it is first asked for and again; seconds of one answer
of one job; seconds of a look at the folder after one more archive. `…_growth` is how many times as much the large
folder takes per archive, of what every archive adds to: 1 is linear. Memory is what one more job adds.

    python -m benchmarks.archives [--small 1000] [--large 10000] [--dry]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.record import show_or_record
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobOverview
from headrace.rest.client import RestClient
from headrace.rest.handlers.jobs import job_details_of
from headrace.rest.history.archive_catalog import ArchiveCatalog, OverviewCache, RetentionRules
from headrace.rest.history.archive_file import pack_archive
from headrace.rest.history.history_server import HistoryServer

ANSWERS: Final = 40
ANSWER_BYTES: Final = 500
START_MS: Final = 1_795_000_000_000
GROWING: Final = (
    "cold_start_s",
    "warm_start_s",
    "overview_first_s",
    "overview_again_s",
    "refresh_s",
)


def write_archive(folder: Path, number: int) -> None:
    """Write the archive of a job, a second younger than that of the number before."""
    job = f"{number:032x}"
    began = START_MS + number * 1000
    tasks = {"FINISHED": 4}
    overview = JobOverview(
        JobId.from_hex(job), "departures", JobStatus.FINISHED, began, began + 500, began + 500, tasks=tasks
    )  # fmt: skip
    line = job_details_of(overview, began + 500).model_dump_json(by_alias=True).encode()
    text = json.dumps({"jid": job, "filler": "x" * ANSWER_BYTES}).encode()
    answers = [(f"/jobs/{job}", text)]
    answers += [(f"/jobs/{job}/vertices/{vertex:04}", text) for vertex in range(ANSWERS)]
    (folder / job).write_bytes(pack_archive(job, line, answers, is_compressed=True))
    os.utime(folder / job, (began / 1000, began / 1000))


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def seconds(body: Callable[[], Any]) -> float:
    """Return the time that a call takes."""
    began = time.perf_counter()
    body()
    return time.perf_counter() - began


def serve(folder: Path, count: int) -> dict[str, float]:
    """Serve a folder, in a process that did nothing else; return what each step took."""
    settings = Settings(
        {
            "historyserver.archive.fs.dir": str(folder),
            "historyserver.archive.fs.refresh-interval": "1 h",
            "historyserver.web.port": "0",
            "historyserver.web.tmpdir": str(folder.parent / f"work-{count}"),
            "rest.authentication": "none",
        }
    )
    found: dict[str, float] = {}
    for kind in ("cold", "warm"):
        began = time.perf_counter()
        server = HistoryServer(settings, SystemClock())
        try:
            server.first_look.wait()
            found[f"{kind}_start_s"] = time.perf_counter() - began
            if kind == "cold":
                # Nothing of a client has been loaded yet, nor an answer made.
                found["memory_bytes"] = resident_bytes()
                found |= ask(RestClient(server.address, ""), count)
        finally:
            server.close()
    cache = OverviewCache(folder.parent / f"work-refresh-{count}", [str(folder)])
    catalog = ArchiveCatalog([str(folder)], RetentionRules(), cache, SystemClock())
    catalog.refresh()
    write_archive(folder, count)
    found["refresh_s"] = seconds(catalog.refresh)
    if len(catalog.statuses()) != count + 1:
        raise ValueError(f"{len(catalog.statuses())} jobs are listed, of {count + 1}")
    return found


def ask(client: RestClient, count: int) -> dict[str, float]:
    """Ask for all jobs and for one; return what each answer took."""
    # The application is made with the first request.
    client.get("/config")
    job = f"/jobs/{count // 2:032x}"
    paths = {"overview": "/jobs/overview", "answer": job}
    found = {
        f"{name}_{turn}_s": seconds(lambda path=path: client.get(path))
        for name, path in paths.items()
        for turn in ("first", "again")
    }
    listed = len(client.get("/jobs/overview")["jobs"])
    if listed != count:
        raise ValueError(f"{listed} jobs are listed, of {count}")
    return found


def measure(small: int, large: int) -> dict[str, Any]:
    """Return the figures of both counts, and how those of the larger one grow."""
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as root:
        for count in (small, large):
            folder = Path(root) / f"archives-{count}"
            folder.mkdir()
            for number in range(count):
                write_archive(folder, number)
            command = [
                sys.executable,
                "-m",
                "benchmarks.archives",
                "serve",
                str(folder),
                str(count),
            ]
            environment = {**os.environ, "HEADRACE_HOME": root}
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environment
            )
            found[count] = json.loads(done.stdout)
    figures = {
        f"{name}_{count}": round(value, 4)
        for count, taken in found.items()
        for name, value in taken.items()
    }
    growth = {
        f"{name}_growth": round(found[large][name] / found[small][name] * small / large, 2)
        for name in GROWING
    }
    memory = found[large]["memory_bytes"] - found[small]["memory_bytes"]
    return {
        "small": small,
        "large": large,
        **figures,
        **growth,
        "memory_per_job_bytes": round(memory / (large - small)),
    }


def main() -> None:
    """Measure, or be the server of a measurement."""
    if sys.argv[1:2] == ["serve"]:
        print(json.dumps(serve(Path(sys.argv[2]), int(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archives", description=__doc__)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    figures = measure(options.small, options.large)
    show_or_record("archives", figures, is_dry=options.dry)


if __name__ == "__main__":
    main()
