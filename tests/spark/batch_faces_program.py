"""Jobs in BATCH mode that the program looks at over REST, for tests: `batch_faces_program.py <folder>`."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common import Types
from headrace.core.errors import HeadraceError, JobExecutionError
from headrace.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.rest.client import RestClient
from headrace.rest.history.archive_storage import list_archives
from headrace.rest.home.connections import find_connection

FOLDER = Path(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)


def await_that(condition: Callable[[], Any]) -> None:
    while not condition():
        threading.Event().wait(0.05)


class Counted(MapFunction):
    """Waits for a file before the first record; counts and measures all of them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self._last = -1
        self._counter = group.counter("seen")
        self._values = group.distribution("values")
        group.gauge("last", lambda: self._last)

    def map(self, value: int) -> int:
        await_that((FOLDER / "go").exists)
        self._counter.inc(np.int64(1))
        self._values.update(value)
        self._last = value
        return value


def wait_for_ever(value: int) -> int:
    await_that(lambda: False)
    return value


def divide(number: int) -> int:
    return 1 // number


numbers = env.from_collection(list(range(100)), Types.LONG()).map(Counted(), Types.LONG())
numbers.key_by(lambda n: n % 4, Types.LONG()).reduce(lambda a, b: a + b).print()
client = env.execute_async("sums")
connection = find_connection(None, print).connection
rest = RestClient(connection.address, connection.token)
job = f"/jobs/{client.get_job_id()}"


def states(path: str) -> list[str]:
    return sorted(
        state
        for vertex in rest.get(path)["vertices"]
        for state, count in vertex["tasks"].items()
        for _ in range(count)
    )


await_that(lambda: "RUNNING" in states(job))
listed = {one["jid"]: one for one in rest.get("/jobs/overview")["jobs"]}[job.rpartition("/")[2]]
print("RUNNING", listed["state"], rest.get(f"{job}/plan")["plan"]["type"], states(job))
(FOLDER / "go").touch()
result = client.get_job_execution_result().result()
details = rest.get(job)
for vertex in details["vertices"]:
    found = vertex["metrics"]
    print("VERTEX", vertex["name"], vertex["status"], found["read-records"], found["write-records"])
    print("BYTES", found["read-bytes"] > 0, found["write-bytes"] > 0)
    each = rest.get(f"{job}/vertices/{vertex['id']}")["subtasks"]
    print("SUBTASKS", [one["status"] for one in each], all(one["duration"] > 0 for one in each))
[mapped] = [one["id"] for one in details["vertices"] if "Map" in one["name"]]
wanted = "Map.last,Map.values_max,Map.values_count"
metrics = rest.get(f"{job}/vertices/{mapped}/subtasks/metrics?get={wanted}&agg=max,sum")
print("METRICS", sorted((one["id"], one["max"], one["sum"]) for one in metrics))
print("ENDED", details["state"], result.get_all_accumulator_results())
print("PLAN", [node["parallelism"] for node in rest.get(f"{job}/plan")["plan"]["nodes"]])

env.from_collection([1, 0]).rebalance().map(divide).print()
failed = env.execute_async("dividing")
try:
    failed.get_job_execution_result().result()
except JobExecutionError:
    exceptions = rest.get(f"/jobs/{failed.get_job_id()}/exceptions")
    (entry,) = exceptions["exceptionHistory"]["entries"]
    print("EXCEPTION", entry["taskName"], entry["stacktrace"].partition("\n")[0])

env.from_collection([1]).map(wait_for_ever).print()
endless = env.execute_async("endless")
path = f"/jobs/{endless.get_job_id()}"
await_that(lambda: "RUNNING" in states(path))
try:
    endless.trigger_savepoint(str(FOLDER)).result()
except HeadraceError as error:
    print("SAVEPOINT", str(error).partition("\n")[0])
rest.patch(path, mode="cancel")
await_that(lambda: rest.get(f"{path}/status")["status"] == "CANCELED")
print("CANCELED", states(path))
archives = str(FOLDER / "archives")
await_that(lambda: len(list_archives(archives)) == 3)
print(
    "ARCHIVED",
    sorted(path.name for path in Path(archives).iterdir())
    == sorted(str(one.get_job_id()) for one in (client, failed, endless)),
)
