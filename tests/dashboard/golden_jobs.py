"""Jobs of the fake cluster: one that runs, one under back pressure, one that fails and one that has finished.

Each is described once, by vertices and what their subtasks do; the answers of the routes are made from that.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

NOW: Final = 1_795_572_000_000
"""The clock of the fake cluster stands still, in epoch milliseconds: pictures of its pages are the same each time."""
NO_WATERMARK: Final = -9223372036854775808
END_OF_INPUT: Final = 9223372036854775807
TASK_MANAGERS: Final = ("10.0.0.11:34567-a1b2c3", "10.0.0.12:40123-d4e5f6")


@dataclass(frozen=True)
class Subtask:
    """State and traffic of one subtask: times are shares of a second."""

    busy: float = 0.0
    back_pressured: float = 0.0
    received: int = 0
    sent: int = 0
    watermark: int = NO_WATERMARK
    status: str = "RUNNING"
    attempt: int = 0
    idle_ms: int = 0
    split: str = ""
    align_ms: int = 4
    delay_ms: int = 12


@dataclass(frozen=True)
class Vertex:
    """One vertex: `inputs` are ids with the strategy of the edge."""

    id: str
    name: str
    subtasks: tuple[Subtask, ...]
    inputs: tuple[tuple[str, str], ...] = ()
    records_per_second: float = 0.0
    max_parallelism: int = 128
    is_source: bool = False

    @property
    def status(self) -> str:
        """State that stands for all subtasks."""
        states = [subtask.status for subtask in self.subtasks]
        return next(
            (state for state in ("FAILED", "CANCELED", "SCHEDULED") if state in states), states[0]
        )


@dataclass(frozen=True)
class GoldenJob:
    """One job, of which every route's answer can be made."""

    id: str
    name: str
    state: str
    vertices: tuple[Vertex, ...]
    begun: int
    ended: int = -1
    timestamps: dict[str, int] = field(default_factory=dict[str, int])
    exceptions: tuple[dict[str, Any], ...] = ()
    checkpoint_interval_ms: int = 10_000
    checkpoint_ms: int = 180
    checkpoints_failed: int = 0


def _id(letter: str) -> str:
    return letter * 32


TRACEBACK: Final = """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/headrace/task/stream_task.py", line 214, in _process
    self._chain.process_batch(batch)
  File "/opt/venv/lib/python3.11/site-packages/headrace/operators/record/map.py", line 41, in process_batch
    results = [self._function(value) for value in values]
  File "/srv/ada/payments/pipeline.py", line 42, in parse
    return Payment(row["id"], int(row["amount"]))
                              ^^^^^^^^^^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'twelve'
"""

_LOST: Final = "headrace.rpc.errors.TaskManagerLostError: TaskManager 10.0.0.12:40123-d4e5f6 has not answered for 50 s"

RUNNING: Final = GoldenJob(
    id=_id("a"),
    name="new_york_departures",
    state="RUNNING",
    begun=NOW - 3_720_000,
    timestamps={"CREATED": NOW - 3_720_000, "RUNNING": NOW - 3_719_000},
    vertices=(
        Vertex(
            "1" * 32,
            "Source: flights -> Filter: cancelled",
            tuple(
                Subtask(
                    0.24, 0.0, 0, 168_000 + i * 900, NOW - 2_400, split=f"flights-{i}", idle_ms=40
                )
                for i in range(2)
            ),
            records_per_second=94.0,
            is_source=True,
        ),
        Vertex(
            "2" * 32,
            "Window: delays per hour",
            tuple(Subtask(0.31, 0.0, 84_000 + i * 2_000, 10_700, NOW - 3_100) for i in range(4)),
            (("1" * 32, "HASH"),),
            94.0,
        ),
        Vertex(
            "3" * 32,
            "Sink: departures",
            (Subtask(0.05, 0.0, 42_800, 0, NOW - 3_100),),
            (("2" * 32, "REBALANCE"),),
            12.0,
        ),
    ),
)

BACK_PRESSURED: Final = GoldenJob(
    id=_id("b"),
    name="orders_by_customer",
    state="RUNNING",
    begun=NOW - 780_000,
    timestamps={"CREATED": NOW - 780_000, "RUNNING": NOW - 778_000},
    checkpoint_ms=14_300,
    checkpoints_failed=2,
    vertices=(
        Vertex(
            "1" * 32,
            "Source: orders -> Map: parse",
            (
                Subtask(0.06, 0.91, 0, 1_830_000, NOW - 21_000, split="orders-3", idle_ms=20),
                Subtask(0.04, 0.0, 0, 311_000, NOW - 412_000, split="orders-7", idle_ms=388_000),
            ),
            records_per_second=7_400.0,
            is_source=True,
        ),
        Vertex(
            "2" * 32,
            "Source: customers",
            (Subtask(0.02, 0.0, 0, 5_200, NOW - 19_000, split="customers-0", idle_ms=900),),
            records_per_second=3.0,
            is_source=True,
        ),
        Vertex(
            "3" * 32,
            "KeyedProcess: enrich with customer",
            (
                Subtask(0.12, 0.0, 190_000, 190_000, NOW - 412_000, align_ms=6_100, delay_ms=3_000),
                Subtask(0.10, 0.0, 171_000, 171_000, NOW - 412_000, align_ms=5_900, delay_ms=3_100),
                Subtask(
                    0.99, 0.0, 1_640_000, 1_640_000, NOW - 412_000, align_ms=210, delay_ms=12_400
                ),
                Subtask(0.11, 0.0, 145_000, 145_000, NOW - 412_000, align_ms=6_000, delay_ms=3_050),
            ),
            (("1" * 32, "HASH"), ("2" * 32, "BROADCAST")),
            7_403.0,
        ),
        Vertex(
            "4" * 32,
            "Sink: files of orders",
            tuple(Subtask(0.18, 0.0, 1_073_000, 0, NOW - 412_000) for _ in range(2)),
            (("3" * 32, "FORWARD"),),
            7_403.0,
        ),
    ),
)

FAILING: Final = GoldenJob(
    id=_id("c"),
    name="payments",
    state="RESTARTING",
    begun=NOW - 96_000,
    timestamps={"CREATED": NOW - 96_000, "RUNNING": NOW - 40_000, "RESTARTING": NOW - 7_000},
    exceptions=(
        {
            "exceptionName": "ValueError",
            "stacktrace": TRACEBACK,
            "timestamp": NOW - 7_000,
            "failureLabels": {},
            "taskName": "Source: payments -> Map: parse (2/2) - execution #3",
            "endpoint": "10.0.0.12:40123",
            "taskManagerId": TASK_MANAGERS[1],
            "concurrentExceptions": [
                {
                    "exceptionName": "TaskManagerLostError",
                    "stacktrace": _LOST,
                    "timestamp": NOW - 6_950,
                    "failureLabels": {},
                    "taskName": "Sink: ledger (1/1) - execution #3",
                    "endpoint": "10.0.0.11:34567",
                    "taskManagerId": TASK_MANAGERS[0],
                }
            ],
        },
        {
            "exceptionName": "TaskManagerLostError",
            "stacktrace": _LOST,
            "timestamp": NOW - 61_000,
            "failureLabels": {},
            "concurrentExceptions": [],
        },
    ),
    vertices=(
        Vertex(
            "1" * 32,
            "Source: payments -> Map: parse",
            (
                Subtask(sent=9_100, status="CANCELED", attempt=3),
                Subtask(sent=8_700, status="FAILED", attempt=3),
            ),
            is_source=True,
        ),
        Vertex(
            "2" * 32,
            "Sink: ledger",
            (Subtask(received=17_800, status="CANCELED", attempt=3),),
            (("1" * 32, "REBALANCE"),),
        ),
    ),
)

FINISHED: Final = GoldenJob(
    id=_id("d"),
    name="words_of_the_day",
    state="FINISHED",
    begun=NOW - 7_400_000,
    ended=NOW - 7_331_000,
    timestamps={
        "CREATED": NOW - 7_400_000,
        "RUNNING": NOW - 7_399_000,
        "FINISHED": NOW - 7_331_000,
    },
    checkpoint_ms=95,
    vertices=(
        Vertex(
            "1" * 32,
            "Source: lines -> FlatMap: words",
            (Subtask(sent=92_400, status="FINISHED", watermark=END_OF_INPUT),),
            is_source=True,
        ),
        Vertex(
            "2" * 32,
            "Reduce: count",
            (
                Subtask(received=46_100, sent=1_200, status="FINISHED", watermark=END_OF_INPUT),
                Subtask(received=46_300, sent=1_180, status="FINISHED", watermark=END_OF_INPUT),
            ),
            (("1" * 32, "HASH"),),
        ),
        Vertex(
            "3" * 32,
            "Sink: words",
            (Subtask(received=2_380, status="FINISHED", watermark=END_OF_INPUT),),
            (("2" * 32, "REBALANCE"),),
        ),
    ),
)

JOBS: Final = {
    "running": RUNNING,
    "back-pressured": BACK_PRESSURED,
    "failing": FAILING,
    "finished": FINISHED,
}


def io_metrics(subtasks: tuple[Subtask, ...], lived_ms: int) -> dict[str, Any]:
    """Figures of records, bytes and time, summed over subtasks."""
    received = sum(subtask.received for subtask in subtasks)
    sent = sum(subtask.sent for subtask in subtasks)
    return {
        "read-bytes": received * 71,
        "read-bytes-complete": True,
        "write-bytes": sent * 71,
        "write-bytes-complete": True,
        "read-records": received,
        "read-records-complete": True,
        "write-records": sent,
        "write-records-complete": True,
        "accumulated-backpressured-time": int(sum(s.back_pressured for s in subtasks) * lived_ms),
        "accumulated-idle-time": int(
            sum(1 - s.back_pressured - s.busy for s in subtasks) * lived_ms
        ),
        "accumulated-busy-time": sum(s.busy for s in subtasks) * lived_ms,
    }


def state_counts(parts: Iterable[Subtask | Vertex]) -> dict[str, int]:
    """Subtasks or vertices of each state, which names every state."""
    states = (
        "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
        "RECONCILING",
    )  # fmt: skip
    statuses = [each.status for each in parts]
    return {state: statuses.count(state) for state in states}


def lived_ms(job: GoldenJob) -> int:
    """Return the milliseconds for which a job has run."""
    return (job.ended if job.ended > 0 else NOW) - job.begun


def job_details(job: GoldenJob) -> dict[str, Any]:
    """Row of `/jobs/overview`."""
    counts = state_counts(tuple(itertools.chain.from_iterable(v.subtasks for v in job.vertices)))
    return {
        "jid": job.id,
        "name": job.name,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        "start-time": job.begun,
        "end-time": job.ended,
        "duration": lived_ms(job),
        "state": job.state,
        "last-modification": NOW - 1_000,
        "tasks": {"total": sum(counts.values())} | {k.lower(): v for k, v in counts.items()},
        "pending-operators": 0,
    }


def job_info(job: GoldenJob) -> dict[str, Any]:
    """Answer of `/jobs/<id>`."""
    lived = lived_ms(job)
    names = (
        "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED", "RESTARTING",
        "SUSPENDED", "RECONCILING",
    )  # fmt: skip
    return {
        "jid": job.id,
        "application-id": job.id,
        "name": job.name,
        "isStoppable": False,
        "state": job.state,
        "job-type": "STREAMING",
        "schedulerType": "Default",
        "start-time": job.begun,
        "end-time": job.ended,
        "duration": lived,
        "maxParallelism": 128,
        "now": NOW,
        "timestamps": {name: job.timestamps.get(name, 0) for name in names},
        "vertices": [
            {
                "id": vertex.id,
                "slotSharingGroupId": "5" * 32,
                "name": vertex.name,
                "maxParallelism": vertex.max_parallelism,
                "parallelism": len(vertex.subtasks),
                "status": vertex.status,
                "start-time": job.begun + 900,
                "end-time": job.ended,
                "duration": lived - 900,
                "tasks": state_counts(vertex.subtasks),
                "metrics": io_metrics(vertex.subtasks, lived),
            }
            for vertex in job.vertices
        ],
        "status-counts": state_counts(job.vertices),
        "plan": plan(job),
        "pending-operators": 0,
    }


def plan(job: GoldenJob) -> dict[str, Any]:
    """Plan with nodes, sinks first."""
    return {
        "jid": job.id,
        "name": job.name,
        "type": "STREAMING",
        "nodes": [
            {
                "id": vertex.id,
                "parallelism": len(vertex.subtasks),
                "operator": "",
                "operator_strategy": "",
                "description": vertex.name.replace(" -> ", "<br/>+- ") + "<br/>",
                "optimizer_properties": {},
            }
            | (
                {
                    "inputs": [
                        {
                            "num": number,
                            "id": source,
                            "ship_strategy": strategy,
                            "exchange": "pipelined_bounded",
                        }
                        for number, (source, strategy) in enumerate(vertex.inputs)
                    ]
                }
                if vertex.inputs
                else {}
            )
            for vertex in reversed(job.vertices)
        ],
    }


def attempt(job: GoldenJob, index: int, subtask: Subtask) -> dict[str, Any]:
    """Answer for one subtask."""
    lived = lived_ms(job)
    manager = TASK_MANAGERS[index % len(TASK_MANAGERS)]
    return {
        "subtask": index,
        "status": subtask.status,
        "attempt": subtask.attempt,
        "endpoint": manager.partition("-")[0],
        "start-time": job.begun + 900,
        "start_time": job.begun + 900,
        "end-time": job.ended,
        "duration": lived - 900,
        "metrics": io_metrics((subtask,), lived),
        "taskmanager-id": manager,
        "status-duration": {
            "CREATED": 3,
            "SCHEDULED": 40,
            "DEPLOYING": 21,
            "INITIALIZING": 136,
            "RUNNING": lived - 1_100,
        },
    }
