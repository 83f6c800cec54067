"""A driver in a process of its own, with TaskManagers as further ones; several with one cluster id are rivals.

Its arguments are a JSON file with its settings, a scratch folder, and a file that arms failpoints of its own. It reads
words, one a line: `submit <file with a job graph>`, `running <job id>`, `result <job id>`, `die-with-one`, which kills
a TaskManager and itself, `workers`, `jobs`, `fail <part>`, which plants a bug in a part of the control plane,
`shut-down` and, at the end of the input, closes what it has. It prints a line of JSON for each thing that happens.
Where `rest.port` is set it serves REST, as a session does; and as a session it says at its end, and with its exit code,
why it has ended.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.cli.logs import report_failure
from headrace.cluster.cluster import Cluster
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import ClusterEntrypoint
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.cluster.host_services import HostServices
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.process import failpoints
from headrace.core.randomness import system_random
from headrace.core.threads import start_thread
from headrace.gateways.errors import NotLeadingError
from headrace.graph.job_graph import JobGraph
from headrace.rest.cluster_view import ControlPlane
from headrace.rest.options import REST_PORT
from headrace.rest.web_monitor import WebMonitor
from testkit.waiting import wait_until
from tests.integration.high_availability.drivers import IS_ELSEWHERE
from tests.integration.high_availability.planted_bugs import plant_from_environment
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
    """Tell the result of a job; asked again where this driver loses the leadership, and gets it back."""
    job_id, pause = JobId.from_hex(job_hex), threading.Event()
    with contextlib.suppress(TimeoutError):
        while True:
            try:
                result = handle.call(handle.dispatcher.request_job_result(job_id), WAIT_S)
            except NotLeadingError:
                pause.wait(0.1)
                continue
            if result.status is not JobStatus.SUSPENDED:
                break
            pause.wait(0.1)
        tell("result", status=result.status.name, failure=result.failure and result.failure.text)


def await_running(handle: ClusterHandle, job_hex: str) -> None:
    """Tell when all tasks of a job run, or have run, and the checkpoint from which they began."""
    job_id = JobId.from_hex(job_hex)
    pause = threading.Event()
    while True:
        with contextlib.suppress(HeadraceError):
            details = handle.call(handle.dispatcher.request_job_details(job_id), WAIT_S)
            states = {task.state for vertex in details.vertices for task in vertex.subtasks}
            if states and states <= {ExecutionState.RUNNING, ExecutionState.FINISHED}:
                break
        pause.wait(0.02)
    request = handle.dispatcher.request_checkpoint_statistics(job_id)
    restored = handle.call(request, WAIT_S).restored
    places = {
        f"{number}-{task.subtask_index}": str(task.resource_id)
        for number, vertex in enumerate(details.vertices)
        for task in vertex.subtasks
    }
    tell(
        "running",
        restored=None if restored is None else restored.checkpoint_id,
        places=places,
        submitted_ms=details.status_timestamps_ms[JobStatus.INITIALIZING.name],
        started_ms=min(details.status_timestamps_ms.values()),
    )


def tell_jobs(handle: ClusterHandle) -> None:
    """Tell which jobs this driver knows once it leads, and has read them."""
    pause = threading.Event()
    while True:
        try:
            jobs = handle.call(handle.dispatcher.list_jobs(), WAIT_S)
            break
        except NotLeadingError:
            pause.wait(0.1)
    tell("jobs", ids=[str(job.job_id) for job in jobs])


ENDPOINTS: Final[dict[str, Callable[[Cluster], Any]]] = {
    "dispatcher": lambda cluster: cluster.dispatcher,
    "resourcemanager": lambda cluster: cluster.resource_manager,
    "blobserver": lambda cluster: cluster.blob_server,
    "leaders": lambda cluster: cluster.leaders,
    "jobmanager": lambda cluster: next(iter(cluster.dispatcher._jobs)).job_master,
}
"""Parts that are endpoints of RPC, by their names in addresses."""


def bug(part: str) -> Any:
    raise LookupError(f"a bug in {part}")


async def run_bug(part: str) -> None:
    bug(part)


def fail(part: str, handle: ClusterHandle, web_monitor: WebMonitor) -> None:
    """Let a coroutine of a part fail, or a timer."""
    cluster = handle._cluster
    if part == "rest":
        server: Any = web_monitor.server
        wait_until(lambda: server._server is not None, 60, "REST serves")
        server._server.on_tick = lambda counter: run_bug(part)
    elif part == "election":
        election: Any = cluster._high_availability and cluster._high_availability.election
        election.step = lambda: bug(part)
    elif part == "timer":
        handle.loop.call_soon_threadsafe(handle.loop.call_later, 0.01, bug, part)
    else:
        handle.loop.call_soon_threadsafe(
            lambda: ENDPOINTS[part](cluster).spawn(run_bug(part), "something")
        )


def serve_rest(web_monitor: WebMonitor, handle: ClusterHandle) -> None:
    """Serve clients, and let them know where."""
    web_monitor.start(
        ControlPlane(
            handle.dispatcher,
            handle.resource_manager,
            handle.loop,
            blob_server=handle.blob_server,
            fail=handle.fail,
        ),
        name="driver",
        is_session=True,
    )
    assert web_monitor.server is not None
    handle.announce(web_monitor.server.address)
    tell("serves", address=web_monitor.server.address)


def obey(handle: ClusterHandle, driver: ProcessDriver, web_monitor: WebMonitor) -> None:
    for line in sys.stdin:
        match line.split():
            case ["submit", path]:
                submit(handle, path)
            case ["result", job_hex]:
                start_thread("result", lambda job=job_hex: await_result(handle, job))
            case ["running", job_hex]:
                start_thread("running", lambda job=job_hex: await_running(handle, job))
            case ["die-with-one"]:
                driver.live[0].kill()
                os.kill(os.getpid(), signal.SIGKILL)
            case ["workers"]:
                live = {each.name: each.pid for each in driver.live}
                tell("workers", pids=sorted(live.values()), names=live)
            case ["jobs"]:
                tell_jobs(handle)
            case ["fail", part]:
                fail(part, handle, web_monitor)
            case ["shut-down"]:
                handle.call(handle.dispatcher.shut_down_cluster(), WAIT_S)
            case words:
                raise ValueError(f"no such words: {words}")


def main(settings_file: str, scratch: str, points: str) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    settings = Settings(json.loads(Path(settings_file).read_text()))
    plant_from_environment()
    if os.environ.get(IS_ELSEWHERE):
        lock: Any = ProcessLock
        lock.has_ended = lambda self, name: False
    failpoints.arm(Settings({failpoints.FAILPOINTS.key: points}))
    driver: Any = ProcessDriver(settings, Path(scratch), 2, writes_logs=True)
    clock, random = SystemClock(), system_random()
    web_monitor = WebMonitor(settings, clock, random)
    entrypoint = ClusterEntrypoint(
        settings, driver, {}, SECRET, "127.0.0.1", "127.0.0.1", clock, random,
        host_services=HostServices(on_job_ended=web_monitor.job_ended),
    )  # fmt: skip
    tell("started", pid=os.getpid())
    handle = driver.handle = entrypoint.start()
    tell("leads")
    if REST_PORT.key in settings.to_dict():
        serve_rest(web_monitor, handle)
    is_over = threading.Event()

    def read_words() -> None:
        obey(handle, driver, web_monitor)
        is_over.set()

    start_thread("words", read_words)
    while not is_over.wait(0.02) and not handle.is_shutting_down.is_set():
        pass
    web_monitor.leave()
    handle.close()
    web_monitor.close()
    driver.kill_all()
    tell("ended", failure=type(handle.failure).__name__)
    return 0 if handle.failure is None else report_failure(handle.failure)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
