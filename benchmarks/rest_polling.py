"""What does it cost the control thread when ten browsers look at a job of 1,000 vertices and 10,000 subtasks?

The control plane and the tasks without data of `tasks_per_job.py`, each with all metrics that a task has, and the REST
server beside them. TaskManagers run on the control thread here, so their share of the work counts as its. Browsers are
threads of another process; each asks as the dashboard's page "why is it slow" does, which asks most, and for the event
time of all subtasks as "why is there no output" does, every `web.refresh-interval`: overview, list of jobs, the job,
its exceptions and watermarks, six metrics of 60 vertices (of larger jobs the dashboard asks for no more), and subtasks
and back pressure of 24. Figures: processor time of the control thread, as a
share of the time that passed, with browsers and without, in turn; the REST thread's beside it; how long a browser
waited for the job; and rounds per browser, as one that waits asks less often.

    python -m benchmarks.rest_polling [--browsers 10] [--seconds 20] [--turns 3] [--dry]
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.record import show_or_record
from benchmarks.tasks_per_job import (
    ASK_TIMEOUT,
    TASK_MANAGERS_MAX,
    TIMEOUT_S,
    await_running,
    job_of,
    start_cluster,
)
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.metrics.metric_name import MetricScope
from headrace.metrics.names import METRIC_NAMES
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.rest_server import RestServer

VERTICES: Final = 1_000
TASKS: Final = 10_000
INTERVAL_S: Final = 3.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_METRICS: Final = (
    "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,"
    "numRecordsInPerSecond,numRecordsOutPerSecond,currentInputWatermark"
)
_ASKED: Final = 60
_DETAILED: Final = 24
"""What dashboard/src/model/jobFacts.ts asks for: LIVE, ASKED_MAX and DETAILED_MAX."""


def browse(address: str, token: str, paths: list[str], seconds: float) -> list[float]:
    """Ask for all paths every interval; return how long the job, the first path, took, in milliseconds."""
    connection = http.client.HTTPConnection(address, timeout=60)
    waited: list[float] = []
    end = time.perf_counter() + seconds
    while (round_began := time.perf_counter()) < end:
        for number, path in enumerate(paths):
            began = time.perf_counter()
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, (path, response.status, body[:200])
            assert "metrics?" not in path or b"busyTimeMsPerSecond" in body, (path, body[:200])
            if number == 0:
                waited.append((time.perf_counter() - began) * 1000)
        time.sleep(max(0.0, INTERVAL_S - (time.perf_counter() - round_began)))
    connection.close()
    return waited


def browsers(arguments: list[str]) -> None:
    """Let several browsers look; prints the times that they waited."""
    address, token, paths, count, seconds = arguments
    with concurrent.futures.ThreadPoolExecutor(int(count)) as pool:
        found = [
            pool.submit(browse, address, token, json.loads(paths), float(seconds))
            for _ in range(int(count))
        ]
        print(json.dumps([wait for each in found for wait in each.result()]))


def cpu_seconds(thread_name: str) -> float:
    """Return the processor time of the thread of this process that has this name."""
    (number,) = (one.native_id for one in threading.enumerate() if one.name == thread_name)
    stat = Path(f"/proc/self/task/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


def measure(browser_count: int, seconds: float, turns: int) -> dict[str, Any]:
    """Return shares of the control thread with and without browsers, medians of the turns."""
    graph = job_of(TASKS, vertex_count=VERTICES)
    slots = -(-graph.vertices[0].parallelism // TASK_MANAGERS_MAX)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["HEADRACE_HOME"] = directory
        settings = Settings(
            {
                "execution.checkpointing.dir": directory,
                "pekko.ask.timeout": ASK_TIMEOUT,
                "rest.port": "0",
            }
        )
        handle = start_cluster(slots, settings, metrics_of_a_task())
        server = RestServer(
            ControlPlane(handle.dispatcher, handle.resource_manager, handle.loop),
            settings,
            SystemClock(),
            name="polling",
        )
        server.start()
        try:
            handle.submit(graph)
            handle.call(await_running(handle, graph.job_id), TIMEOUT_S)
            (file,) = Path(directory, "clusters").glob("*.json")
            job = f"/jobs/{graph.job_id.hex()}"
            paths = [job, "/overview", "/jobs/overview", f"{job}/exceptions", f"{job}/watermarks"]
            paths += [
                f"{job}/vertices/{vertex.vertex_id.hex()}/subtasks/metrics?get={_METRICS}"
                for vertex in graph.vertices[:_ASKED]
            ]
            for vertex in graph.vertices[:_DETAILED]:
                path = f"{job}/vertices/{vertex.vertex_id.hex()}"
                paths += [path, f"{path}/backpressure"]
            command = [sys.executable, "-m", "benchmarks.rest_polling", "browsers"]
            command += [server.address.partition("://")[2], json.loads(file.read_text())["token"]]
            command += [json.dumps(paths), str(browser_count), str(seconds)]
            found: dict[str, list[float]] = {"with": [], "without": [], "rest": [], "waits": []}
            waits_of([*command[:-1], "1"])
            for _ in range(turns):
                found["without"].append(share("headrace-benchmark", lambda: time.sleep(seconds)))
                rest_before, began = cpu_seconds("headrace-rest"), time.perf_counter()
                found["with"].append(
                    share("headrace-benchmark", lambda: found["waits"].extend(waits_of(command)))
                )
                rest_s = cpu_seconds("headrace-rest") - rest_before
                found["rest"].append(rest_s / (time.perf_counter() - began))
        finally:
            server.close()
            handle.close()
    return {
        "vertices": VERTICES,
        "tasks": TASKS,
        "browsers": browser_count,
        "control_share_without": statistics.median(found["without"]),
        "control_share_with": statistics.median(found["with"]),
        "control_share_of_browsers": statistics.median(found["with"])
        - statistics.median(found["without"]),
        "rest_share": statistics.median(found["rest"]),
        "job_wait_p50_ms": statistics.median(found["waits"]),
        "job_wait_max_ms": max(found["waits"]),
        "requests_per_round": len(paths),
        "rounds_share": len(found["waits"]) * INTERVAL_S / (browser_count * seconds * turns),
        "turns": turns,
    }


def metrics_of_a_task() -> dict[str, float]:
    """Return a figure for each metric of Flink's and ours that a task has."""
    names = (row.name for row in METRIC_NAMES if row.scope is MetricScope.TASK)
    return {name: float(number) for number, name in enumerate(names)}


def waits_of(command: list[str]) -> list[float]:
    """Run browsers; return how long each waited for the job."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def share(thread_name: str, body: Any) -> float:
    """Return the share of the time of `body` for which a thread was on a processor."""
    before, began = cpu_seconds(thread_name), time.perf_counter()
    body()
    return (cpu_seconds(thread_name) - before) / (time.perf_counter() - began)


def main() -> None:
    """Measure, or be the browsers of a measurement."""
    if sys.argv[1:2] == ["browsers"]:
        browsers(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browsers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    figures = measure(options.browsers, options.seconds, options.turns)
    show_or_record("rest_polling", figures, is_dry=options.dry)


if __name__ == "__main__":
    main()
