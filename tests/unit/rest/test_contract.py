"""Every answer has the fields of Flink's REST API, no more and no less, and every error its status and text."""

import inspect
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from fastapi.params import Depends
from msgspec import structs

from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.lock_watcher import HeldLock
from headrace.rest.models.cluster import ErrorBody
from headrace.rest.routes import ROUTES
from tests.unit.rest.sample_cluster import (
    COUNTER,
    FAILED_JOB,
    LOG_NAME,
    RUNNING_JOB,
    SOURCE,
    START_MS,
    TASK_MANAGER,
)
from tests.unit.rest.served_cluster import ServedCluster, served_cluster

JOB = f"/jobs/{RUNNING_JOB.hex()}"
VERTEX = f"{JOB}/vertices/{COUNTER.hex()}"
TM = f"/taskmanagers/{TASK_MANAGER}"

TASK_STATES = [*(state.name for state in ExecutionState), "RECONCILING"]
IO = [
    "read-bytes", "read-bytes-complete", "write-bytes", "write-bytes-complete", "read-records",
    "read-records-complete", "write-records", "write-records-complete", "accumulated-backpressured-time",
    "accumulated-idle-time", "accumulated-busy-time",
]  # fmt: skip
ATTEMPT = [
    "subtask", "status", "attempt", "endpoint", "start-time", "start_time", "end-time", "duration", "metrics",
    "taskmanager-id", "status-duration",
]  # fmt: skip
SPREAD = ["min", "max", "avg", "sum", "median", "p25", "p75", "p95"]
STATS = ["min", "max", "avg", "p50", "p90", "p95", "p99", "p999"]
FIGURES = [
    "id", "status", "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration",
    "alignment_buffered", "processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks",
]  # fmt: skip
CHECKPOINT = [
    *FIGURES, "className", "is_savepoint", "savepointFormat", "trigger_timestamp", "checkpoint_type", "tasks",
]  # fmt: skip
TASK_MANAGER_FIELDS = [
    "id", "path", "dataPort", "jmxPort", "timeSinceLastHeartbeat", "slotsNumber", "freeSlots", "assignedTasks",
    "totalResource", "freeResource", "hardware", "memoryConfiguration",
]  # fmt: skip
RESOURCE = [
    "cpuCores", "taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory", "extendedResources",
]  # fmt: skip
JOB_IN_LIST = [
    "jid", "name", "jobType", "schedulerType", "start-time", "end-time", "duration", "state", "last-modification",
    "tasks", "pending-operators",
]  # fmt: skip


def fields(value: dict[str, Any], *names: str) -> None:
    assert sorted(value) == sorted(names)


def test_the_dashboard_is_told_what_it_asks_first(cluster: ServedCluster) -> None:
    found = cluster.get("/config").json
    fields(
        found,
        "refresh-interval",
        "timezone-name",
        "timezone-offset",
        "flink-version",
        "flink-revision",
        "features",
    )
    fields(found["features"], "web-submit", "web-cancel", "web-rescale", "web-history", "web-spark")
    assert found["refresh-interval"] == 3000


def test_the_overview_counts_task_managers_slots_and_jobs(cluster: ServedCluster) -> None:
    found = cluster.get("/overview").json
    counts = {"taskmanagers": 1, "slots-total": 2, "slots-available": 1, "jobs-running": 1}
    counts |= {"jobs-finished": 0, "jobs-cancelled": 0, "jobs-failed": 1}
    fields(found, *counts, "flink-version", "flink-commit")
    assert counts.items() <= found.items()


def test_every_path_exists_with_the_version_in_front(cluster: ServedCluster) -> None:
    assert cluster.get("/v1/overview").json == cluster.get("/overview").json
    assert cluster.get("/v2/overview").status == 404


def test_jobs_are_listed_in_short_and_with_their_subtasks(cluster: ServedCluster) -> None:
    assert cluster.get("/jobs").json == {
        "jobs": [
            {"id": RUNNING_JOB.hex(), "status": "RUNNING"},
            {"id": FAILED_JOB.hex(), "status": "FAILED"},
        ]
    }
    running, failed = cluster.get("/jobs/overview").json["jobs"]
    fields(running, *JOB_IN_LIST)
    fields(running["tasks"], "total", *(state.lower() for state in TASK_STATES))
    assert (running["tasks"]["total"], running["tasks"]["running"]) == (4, 4)
    assert (running["end-time"], failed["end-time"]) == (-1, START_MS + 200)
    assert failed["duration"] == 200


def test_a_job_is_shown_with_its_vertices_and_its_plan(cluster: ServedCluster) -> None:
    found = cluster.get(JOB).json
    fields(
        found, "jid", "application-id", "name", "isStoppable", "state", "job-type", "schedulerType", "start-time",
        "end-time", "duration", "maxParallelism", "now", "timestamps", "vertices", "status-counts", "plan",
        "pending-operators",
    )  # fmt: skip
    fields(found["timestamps"], *(status.name for status in JobStatus))
    assert (found["timestamps"]["RUNNING"], found["timestamps"]["FAILED"]) == (START_MS + 200, 0)
    assert (found["state"], found["end-time"], found["maxParallelism"]) == ("RUNNING", -1, -1)
    assert found["status-counts"] == dict.fromkeys(TASK_STATES, 0) | {"RUNNING": 2}
    source, counter = found["vertices"]
    fields(
        source, "id", "slotSharingGroupId", "name", "maxParallelism", "parallelism", "status", "start-time", "end-time",
        "duration", "tasks", "metrics",
    )  # fmt: skip
    fields(source["metrics"], *IO)
    assert source["tasks"] == dict.fromkeys(TASK_STATES, 0) | {"RUNNING": 2}
    assert (source["start-time"], source["end-time"]) == (START_MS + 20, -1)
    assert counter["metrics"]["read-records"] == 300
    assert counter["metrics"]["read-records-complete"] is True


def test_the_plan_lists_sinks_first_and_sources_have_no_inputs(cluster: ServedCluster) -> None:
    plan = cluster.get(f"{JOB}/plan").json["plan"]
    fields(plan, "jid", "name", "type", "nodes")
    counter, source = plan["nodes"]
    node = (
        "id",
        "parallelism",
        "operator",
        "operator_strategy",
        "description",
        "optimizer_properties",
    )
    fields(source, *node)
    fields(counter, *node, "inputs")
    assert counter["inputs"] == [
        {"num": 0, "id": SOURCE.hex(), "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
    ]
    assert counter["description"] == "Count<br/>+- Sink: print<br/>"


def test_settings_of_a_job_come_with_secrets_masked(cluster: ServedCluster) -> None:
    found = cluster.get(f"{JOB}/config").json
    fields(found, "jid", "name", "execution-config", "settings")
    assert found["execution-config"] == {
        "restart-strategy": "No restart strategy",
        "job-parallelism": 2,
        "object-reuse-mode": False,
        "user-config": {"year": "2013"},
    }
    assert found["settings"] == {"s3.secret-key": "******"}


def test_failures_are_listed_newest_first_with_the_users_line_first(cluster: ServedCluster) -> None:
    history = cluster.get(f"{JOB}/exceptions").json["exceptionHistory"]
    newest, oldest = history["entries"]
    whole = ("exceptionName", "stacktrace", "timestamp", "failureLabels", "concurrentExceptions")
    fields(newest, *whole, "taskName", "endpoint", "taskManagerId")
    fields(oldest, *whole)
    assert newest["stacktrace"].startswith("ValueError: no such city (program.py, line 7)")
    assert newest["taskName"] == "Count (1/2) - execution #0"
    assert newest["endpoint"] == "127.0.0.1:4001"
    assert [each["timestamp"] for each in newest["concurrentExceptions"]] == [START_MS + 91]
    assert history["truncated"] is False
    labelled = cluster.get(f"{JOB}/exceptions?failureLabelFilter=type:user").json
    assert labelled["exceptionHistory"]["entries"] == [], "no failure has a label"
    cut = cluster.get(f"{JOB}/exceptions?maxExceptions=1").json["exceptionHistory"]
    assert (len(cut["entries"]), cut["truncated"]) == (1, True)


def test_a_result_is_there_once_the_job_has_ended(cluster: ServedCluster) -> None:
    assert cluster.get(f"{JOB}/execution-result").json == {"status": {"id": "IN_PROGRESS"}}
    found = cluster.get(f"/jobs/{FAILED_JOB.hex()}/execution-result").json
    assert found["status"] == {"id": "COMPLETED"}
    result = found["job-execution-result"]
    fields(
        result, "id", "name", "application-status", "accumulator-results", "net-runtime", "application-id",
        "start-time", "end-time", "failure-cause",
    )  # fmt: skip
    assert (result["application-status"], result["net-runtime"]) == ("FAILED", 200)
    fields(result["failure-cause"], "class", "stack-trace", "serialized-throwable")


def test_accumulators_are_those_of_the_result(cluster: ServedCluster) -> None:
    found = cluster.get(f"{JOB}/accumulators").json
    fields(found, "job-accumulators", "user-task-accumulators", "serialized-user-task-accumulators")
    assert [each["name"] for each in found["user-task-accumulators"]] == ["Count.cities"]


def test_a_vertex_is_shown_with_its_subtasks_and_how_they_differ(cluster: ServedCluster) -> None:
    found = cluster.get(VERTEX).json
    fields(found, "id", "name", "parallelism", "maxParallelism", "now", "subtasks", "aggregated")
    first, second = found["subtasks"]
    fields(first, *ATTEMPT)
    fields(first["status-duration"], "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
    durations = [
        first["status-duration"][state]
        for state in ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING")
    ]
    assert durations == [10, 10, 20, 60]
    assert second["metrics"]["read-records"] == 200
    fields(found["aggregated"], "metrics", "status-duration")
    spread = found["aggregated"]["metrics"]["read-records"]
    fields(spread, *SPREAD)
    assert (spread["min"], spread["max"], spread["sum"], spread["median"]) == (100, 200, 300, 150)


def test_an_attempt_that_is_over_is_shown_by_its_number(cluster: ServedCluster) -> None:
    assert cluster.get(f"{VERTEX}/subtasks/1").json["attempt"] == 1
    earlier = cluster.get(f"{VERTEX}/subtasks/1/attempts/0").json
    fields(earlier, *ATTEMPT)
    assert (earlier["status"], earlier["end-time"], earlier["duration"]) == (
        "FAILED",
        START_MS + 90,
        70,
    )


def test_times_of_subtasks_have_every_state(cluster: ServedCluster) -> None:
    found = cluster.get(f"{VERTEX}/subtasktimes").json
    fields(found, "id", "name", "now", "subtasks")
    fields(found["subtasks"][0], "subtask", "endpoint", "duration", "timestamps")
    fields(found["subtasks"][0]["timestamps"], *TASK_STATES)
    assert found["subtasks"][0]["timestamps"]["FAILED"] == 0


def test_a_vertex_is_shown_by_task_manager(cluster: ServedCluster) -> None:
    found = cluster.get(f"{VERTEX}/taskmanagers").json
    fields(found, "id", "name", "now", "taskmanagers")
    (row,) = found["taskmanagers"]
    fields(
        row, "endpoint", "taskmanager-id", "status", "start-time", "end-time", "duration", "metrics", "status-counts",
        "aggregated",
    )  # fmt: skip
    assert (row["taskmanager-id"], row["metrics"]["read-records"]) == (str(TASK_MANAGER), 300)


def test_back_pressure_has_levels_by_ratio(cluster: ServedCluster) -> None:
    found = cluster.get(f"{VERTEX}/backpressure").json
    fields(found, "status", "backpressureLevel", "backpressure-level", "end-timestamp", "subtasks")
    first, second = found["subtasks"]
    fields(
        first,
        "subtask",
        "backpressureLevel",
        "backpressure-level",
        "ratio",
        "idleRatio",
        "busyRatio",
        "attempt-number",
    )
    assert (found["status"], found["backpressureLevel"]) == ("ok", "high")
    assert (first["backpressureLevel"], second["backpressure-level"]) == ("ok", "high")
    assert (second["ratio"], second["idleRatio"], second["busyRatio"]) == (0.6, 0.1, 0.3)


def test_watermarks_are_listed_by_subtask_and_sources_have_none(cluster: ServedCluster) -> None:
    assert cluster.get(f"{VERTEX}/watermarks").json == [
        {"id": "0.currentInputWatermark", "value": str(START_MS + 5000)},
        {"id": "1.currentInputWatermark", "value": str(START_MS + 5000)},
    ]
    assert cluster.get(f"{JOB}/vertices/{SOURCE.hex()}/watermarks").json == []


def test_the_event_time_of_all_running_subtasks_is_one_answer(cluster: ServedCluster) -> None:
    found = cluster.get(f"{JOB}/watermarks").json
    fields(found, "jid", "now", "subtasks")
    assert [(each["vertex"], each["subtask"]) for each in found["subtasks"]] == [
        (vertex.hex(), index) for vertex in (SOURCE, COUNTER) for index in (0, 1)
    ]
    assert found["subtasks"][3] == {
        "vertex": COUNTER.hex(),
        "subtask": 1,
        "start-time": START_MS + 20,
        "input-watermark": START_MS + 5000,
        "output-watermark": None,
        "idle-time": None,
        "records-read": None,
        "splits": [],
    }
    ended = cluster.get(f"/jobs/{FAILED_JOB.hex()}/watermarks").json
    assert ended["subtasks"] == []


def test_accumulators_are_listed_for_a_vertex_its_subtasks_and_an_attempt(
    cluster: ServedCluster,
) -> None:
    vertex = cluster.get(f"{VERTEX}/accumulators").json
    fields(vertex, "id", "user-accumulators")
    subtasks = cluster.get(f"{VERTEX}/subtasks/accumulators").json
    fields(subtasks, "id", "parallelism", "subtasks")
    fields(subtasks["subtasks"][0], "subtask", "attempt", "endpoint", "user-accumulators")
    attempt = cluster.get(f"{VERTEX}/subtasks/0/attempts/1/accumulators").json
    fields(attempt, "subtask", "attempt", "id", "user-accumulators")
    accumulator = {"name": "Count.cities", "type": "DoubleCounter", "value": "3.0"}
    assert attempt["user-accumulators"] == [accumulator]
    assert vertex["user-accumulators"] == [accumulator | {"value": "6.0"}]


def test_checkpoints_have_counts_summary_and_history(cluster: ServedCluster) -> None:
    found = cluster.get(f"{JOB}/checkpoints").json
    fields(found, "counts", "summary", "latest", "history")
    assert found["counts"] == {
        "restored": 0,
        "total": 3,
        "in_progress": 0,
        "completed": 2,
        "failed": 1,
    }
    fields(
        found["summary"], "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered",
        "processed_data", "persisted_data",
    )  # fmt: skip
    fields(found["summary"]["state_size"], *STATS)
    assert found["summary"]["processed_data"]["p50"] == "NaN"
    completed, failed = found["history"]
    fields(completed, *CHECKPOINT, "external_path", "discarded")
    fields(failed, *CHECKPOINT, "failure_timestamp", "failure_message")
    assert (completed["className"], completed["tasks"], completed["savepointFormat"]) == (
        "completed",
        {},
        None,
    )
    fields(found["latest"], "completed", "savepoint", "failed", "restored")
    assert (found["latest"]["savepoint"], found["latest"]["restored"]) == (None, None)


def test_a_checkpoint_is_shown_with_its_vertices_and_one_of_these_with_its_subtasks(
    cluster: ServedCluster,
) -> None:
    found = cluster.get(f"{JOB}/checkpoints/details/3").json
    fields(found["tasks"][COUNTER.hex()], *FIGURES)
    vertex = cluster.get(f"{JOB}/checkpoints/details/3/subtasks/{COUNTER.hex()}").json
    fields(vertex, *FIGURES, "summary", "subtasks")
    fields(
        vertex["summary"], "checkpointed_size", "state_size", "end_to_end_duration", "checkpoint_duration",
        "alignment", "start_delay",
    )  # fmt: skip
    fields(vertex["summary"]["alignment"], "buffered", "processed", "persisted", "duration")
    pending, completed = vertex["subtasks"]
    assert pending == {"className": "pending", "index": 0, "status": "pending_or_failed"}
    fields(
        completed, "className", "index", "status", "ack_timestamp", "end_to_end_duration", "checkpointed_size",
        "state_size", "checkpoint", "alignment", "start_delay", "unaligned_checkpoint", "aborted",
    )  # fmt: skip
    assert completed["checkpoint"] == {"sync": 2, "async": 8}


def test_the_configuration_of_checkpoints(cluster: ServedCluster) -> None:
    found = cluster.get(f"{JOB}/checkpoints/config").json
    fields(
        found, "mode", "interval", "timeout", "min_pause", "max_concurrent", "externalization", "state_backend",
        "checkpoint_storage", "unaligned_checkpoints", "tolerable_failed_checkpoints", "aligned_checkpoint_timeout",
        "checkpoints_after_tasks_finish", "state_changelog_enabled", "changelog_periodic_materialization_interval",
        "changelog_storage",
    )  # fmt: skip
    assert (found["mode"], found["externalization"]) == (
        "exactly_once",
        {"enabled": True, "delete_on_cancellation": True},
    )


def test_task_managers_are_listed_and_one_is_shown_with_its_slots_and_memory(
    cluster: ServedCluster,
) -> None:
    (listed,) = cluster.get("/taskmanagers").json["taskmanagers"]
    fields(listed, *TASK_MANAGER_FIELDS)
    fields(listed["totalResource"], *RESOURCE)
    fields(listed["hardware"], "cpuCores", "physicalMemory", "freeMemory", "managedMemory")
    fields(
        listed["memoryConfiguration"], "frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap",
        "networkMemory", "managedMemory", "jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
    )  # fmt: skip
    assert (listed["freeSlots"], listed["assignedTasks"], listed["timeSinceLastHeartbeat"]) == (
        1,
        4,
        START_MS,
    )
    found = cluster.get(TM).json
    fields(found, *TASK_MANAGER_FIELDS, "allocatedSlots", "metrics")
    (slot,) = found["allocatedSlots"]
    fields(slot, "jobId", "resource", "assignedTasks")
    assert slot["assignedTasks"] == found["assignedTasks"] == 4
    assert found["metrics"]["heapUsed"] == 123
    non_heap = ("nonHeapUsed", "nonHeapCommitted", "nonHeapMax", "directUsed", "directMax")
    assert [found["metrics"][name] for name in non_heap] == [34, 56, -1, 34, 56]
    assert found["metrics"]["garbageCollectors"] == [{"name": "All", "count": 0, "time": 0}]


def test_a_held_interpreter_lock_is_told_and_left_out_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        manager = cluster.resource_manager
        held = HeldLock(12_000, "hash_all (program.py:7)")
        manager.info = structs.replace(manager.info, held_lock=held)
        (listed,) = cluster.get("/taskmanagers").json["taskmanagers"]
        expected = {"duration": 12_000, "function": "hash_all (program.py:7)"}
        assert listed["heldInterpreterLock"] == expected
        found = cluster.get(TM).json
        fields(found, *TASK_MANAGER_FIELDS, "allocatedSlots", "metrics", "heldInterpreterLock")
        assert found["heldInterpreterLock"] == expected


def test_a_task_manager_that_the_host_takes_away_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        manager = cluster.resource_manager
        manager.info = structs.replace(manager.info, decommissioned="decommissioned: sold")
        (listed,) = cluster.get("/taskmanagers").json["taskmanagers"]
        assert listed["decommissioned"] == "decommissioned: sold"
        found = cluster.get(TM).json
        fields(found, *TASK_MANAGER_FIELDS, "allocatedSlots", "metrics", "decommissioned")
        assert cluster.get("/overview").json["taskmanagers-decommissioned"] == 1


def test_logs_and_threads_of_a_task_manager(cluster: ServedCluster) -> None:
    assert cluster.get(f"{TM}/logs").json == {
        "logs": [{"name": LOG_NAME, "size": 15, "mtime": START_MS}]
    }
    found = cluster.get(f"{TM}/log")
    assert (found.body, found.headers["content-type"]) == (
        b"line\n" * 3,
        "text/plain; charset=UTF-8",
    )
    assert cluster.get(f"{TM}/logs/{LOG_NAME}").body == b"line\n" * 3
    assert cluster.get(f"{TM}/thread-dump").json == {
        "threadInfos": [{"threadName": "headrace-task", "stringifiedThreadInfo": "process_element"}]
    }


def test_the_driver_shows_its_environment_settings_and_threads(cluster: ServedCluster) -> None:
    environment = cluster.get("/jobmanager/environment").json
    fields(environment, "jvm", "classpath")
    fields(environment["jvm"], "version", "arch", "options")
    assert environment["jvm"]["version"] == platform.python_version()
    assert environment["classpath"] == sys.path
    assert {"key": "rest.port", "value": "0"} in cluster.get("/jobmanager/config").json
    threads = {
        each["threadName"] for each in cluster.get("/jobmanager/thread-dump").json["threadInfos"]
    }
    assert "sample control" in threads
    assert cluster.get("/jobmanager/logs").json == {"logs": []}
    missing = cluster.get("/jobmanager/log")
    assert (missing.status, missing.errors) == (
        404,
        "This file does not exist in JobManager log dir.",
    )


def test_data_sets_that_jobs_left(cluster: ServedCluster) -> None:
    assert cluster.get("/datasets").json == {
        "dataSets": [{"id": (b"d" * 16).hex(), "isComplete": True}]
    }


def test_a_job_is_an_application_of_its_own(cluster: ServedCluster) -> None:
    first, _ = cluster.get("/applications/overview").json["applications"]
    fields(first, "id", "name", "start-time", "end-time", "duration", "status", "jobs")
    assert (first["name"], first["jobs"]) == ("SingleJobApplication(cities)", {"RUNNING": 1})
    found = cluster.get(f"/applications/{RUNNING_JOB.hex()}").json
    fields(
        found, "id", "name", "start-time", "end-time", "duration", "status", "timestamps", "jobs"
    )
    assert [each["jid"] for each in found["jobs"]] == [RUNNING_JOB.hex()]


def test_the_table_of_routes_has_no_route_twice_and_each_says_what_it_does() -> None:
    places = [(route.method, route.path, route.is_message) for route in ROUTES]
    assert len(set(places)) == len(places)
    assert [route.path for route in ROUTES if not route.handler.__doc__] == []


def dependencies(call: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield what FastAPI calls for the parameters of `call`, and for those of what it calls."""
    for hint in get_type_hints(call, include_extras=True).values():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Depends) and mark.dependency is not None:
                yield mark.dependency
                yield from dependencies(mark.dependency)


def test_no_parameter_of_a_handler_is_made_on_a_thread_of_its_own() -> None:
    # FastAPI makes a thread for what is no coroutine: that took two thirds of the time of an answer.
    called = {each for route in ROUTES for each in dependencies(route.handler)}
    assert len(called) > 10
    assert [each for each in called if not inspect.iscoroutinefunction(each)] == []


def test_routes_that_always_refuse_say_so_in_their_description(cluster: ServedCluster) -> None:
    refused = [route for route in ROUTES if route.answer is ErrorBody]
    assert len(refused) == 10
    for route in refused:
        path = re.sub(r"{\w+}", RUNNING_JOB.hex(), route.path)
        assert cluster.ask(route.method, path).status == route.status, route.path


def test_an_application_tells_the_failures_and_settings_of_its_job(cluster: ServedCluster) -> None:
    application = f"/applications/{FAILED_JOB.hex()}"
    found = cluster.get(f"{application}/exceptions").json
    entries = found["exceptionHistory"]["entries"]
    job = cluster.get(f"/jobs/{FAILED_JOB.hex()}/exceptions").json
    assert [each["stacktrace"] for each in entries] == [
        each["stacktrace"] for each in job["exceptionHistory"]["entries"]
    ]
    config = cluster.get(f"{application}/jobmanager/config").json
    assert {"key", "value"} == set(config[0])


def test_an_application_is_cancelled_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_cluster(tmp_path, monkeypatch) as cluster:
        answer = cluster.ask("POST", f"/applications/{RUNNING_JOB.hex()}/cancel")
        assert (answer.status, answer.json) == (202, {})
        assert cluster.dispatcher.cancelled == [RUNNING_JOB]


def test_the_status_of_a_job_is_one_word(cluster: ServedCluster) -> None:
    assert cluster.get(f"{JOB}/status").json == {"status": "RUNNING"}
