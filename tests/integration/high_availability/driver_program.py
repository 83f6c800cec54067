"""A driver in a process of its own, with TaskManagers as further ones; several with one cluster id are rivals.

Its arguments are a JSON file with its settings, a scratch folder, and a file that arms failpoints of its own. It reads
words, one a line: `submit <file with a job graph>`, `result <job id>`, `shut-down` and, at the end of the input, closes
what it has. It prints a line of JSON for each thing that happens.
"""

import contextlib
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from headrace.cluster.entrypoint import ClusterEntrypoint, ClusterHandle
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.process import failpoints
from headrace.core.randomness import system_random
from headrace.core.threads import start_thread
from headrace.graph.job_graph import JobGraph
from tests.integration.programs.process_cluster import ProcessDriver
from tests.unit.network.exchange import SECRET

WAIT_S = 120


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def submit(handle: ClusterHandle, path: str) -> None:
    graph = msgspec.msgpack.decode(Path(path).read_bytes(), type=JobGraph)
    try:
        handle.submit(graph, WAIT_S)
    except HeadraceError as error:
        tell("refused", error=type(error).__name__, text=str(error))
    else:
        tell("submitted", job=str(graph.job_id))


def await_result(handle: ClusterHandle, job_hex: str) -> None:
    request = handle.dispatcher.request_job_result(JobId.from_hex(job_hex))
    with contextlib.suppress(TimeoutError):
        result = handle.call(request, WAIT_S)
        tell("result", status=result.status.name, failure=result.failure and result.failure.text)


def obey(handle: ClusterHandle) -> None:
    for line in sys.stdin:
        match line.split():
            case ["submit", path]:
                submit(handle, path)
            case ["result", job_hex]:
                start_thread("result", lambda job=job_hex: await_result(handle, job))
            case ["shut-down"]:
                handle.call(handle.dispatcher.shut_down_cluster(), WAIT_S)
            case words:
                raise ValueError(f"no such words: {words}")


def main(settings_file: str, scratch: str, points: str) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    settings = Settings(json.loads(Path(settings_file).read_text()))
    failpoints.arm(Settings({failpoints.FAILPOINTS.key: points}))
    driver: Any = ProcessDriver(settings, Path(scratch), 2)
    entrypoint = ClusterEntrypoint(
        settings, driver, {}, SECRET, "127.0.0.1", "127.0.0.1", SystemClock(), system_random()
    )
    tell("started", pid=os.getpid())
    handle = driver.handle = entrypoint.start()
    tell("leads")
    is_over = threading.Event()

    def read_words() -> None:
        obey(handle)
        is_over.set()

    start_thread("words", read_words)
    while not is_over.wait(0.02) and not handle.is_shutting_down.is_set():
        pass
    handle.close()
    driver.kill_all()
    tell("ended", failure=type(handle.failure).__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
