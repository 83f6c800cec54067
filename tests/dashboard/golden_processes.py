"""Answers of the routes of processes: the JobManager and two TaskManagers."""

from collections.abc import Sequence
from typing import Any, Final

from tests.dashboard.golden_answers import NotFoundError, Query, metric_list
from tests.dashboard.golden_jobs import JOBS, NOW, TASK_MANAGERS, GoldenJob

_MIB: Final = 1024 * 1024
_LOG: Final = "".join(
    f"2026-11-25 01:{minute:02d}:{second:02d},120 INFO  headrace.cluster "
    f"checkpoint {minute * 6 + second // 10} completed\n"
    for minute in range(40)
    for second in range(0, 60, 10)
) + (
    "2026-11-25 01:40:03,771 WARNING headrace.cluster checkpoint 241 expired\n"
    "2026-11-25 01:40:09,018 ERROR headrace.task subtask 2 of Map: parse failed: ValueError\n"
)
_STACK: Final = (
    'File "headrace/task/mailbox.py", line 77, in take\n'
    "  self._changed.wait()\n"
    'File "threading.py", line 331, in wait'
)


def _known(manager: str) -> str:
    if manager not in TASK_MANAGERS:
        raise NotFoundError(f"TaskManager {manager} not found")
    return manager


def _running() -> list[GoldenJob]:
    return [job for job in JOBS.values() if job.state == "RUNNING"]


def _task_manager(manager: str) -> dict[str, Any]:
    resource = {
        "cpuCores": 2.0,
        "taskHeapMemory": 1024,
        "taskOffHeapMemory": 0,
        "managedMemory": 512,
        "networkMemory": 128,
        "extendedResources": {},
    }
    return {
        "id": manager,
        "path": f"headrace.tcp://{manager.partition('-')[0]}/rpc/taskmanager",
        "dataPort": 45671,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": NOW - 900,
        "slotsNumber": 6,
        "freeSlots": 2 if manager == TASK_MANAGERS[0] else 1,
        "assignedTasks": 4 * len(_running()),
        "totalResource": resource,
        "freeResource": resource,
        "hardware": {
            "cpuCores": 4,
            "physicalMemory": 16_384 * _MIB,
            "freeMemory": 7_020 * _MIB,
            "managedMemory": 512 * _MIB,
        },
        "memoryConfiguration": {
            "frameworkHeap": 128 * _MIB,
            "taskHeap": 1_024 * _MIB,
            "frameworkOffHeap": 128 * _MIB,
            "taskOffHeap": 0,
            "networkMemory": 128 * _MIB,
            "managedMemory": 512 * _MIB,
            "jvmMetaspace": 0,
            "jvmOverhead": 192 * _MIB,
            "totalFlinkMemory": 1_920 * _MIB,
            "totalProcessMemory": 2_208 * _MIB,
        },
    }


def task_managers(_: Sequence[str], query: Query) -> Any:
    return {"taskmanagers": [_task_manager(manager) for manager in TASK_MANAGERS]}


def task_manager(parts: Sequence[str], query: Query) -> Any:
    answer = _task_manager(_known(parts[0]))
    slot = answer["totalResource"]
    memory = dict.fromkeys(
        (
            "nonHeapUsed",
            "nonHeapCommitted",
            "nonHeapMax",
            "directCount",
            "directUsed",
            "directMax",
            "mappedCount",
        ),
        0,
    )
    return answer | {
        "allocatedSlots": [
            {"jobId": job.id, "resource": slot, "assignedTasks": 4} for job in _running()
        ],
        "metrics": memory
        | {
            "mappedUsed": 0,
            "mappedMax": 0,
            "heapUsed": 702 * _MIB,
            "heapCommitted": 702 * _MIB,
            "heapMax": 2_208 * _MIB,
            "nettyShuffleMemorySegmentsAvailable": 3_001,
            "nettyShuffleMemorySegmentsUsed": 1_095,
            "nettyShuffleMemorySegmentsTotal": 4_096,
            "nettyShuffleMemoryAvailable": 94 * _MIB,
            "nettyShuffleMemoryUsed": 34 * _MIB,
            "nettyShuffleMemoryTotal": 128 * _MIB,
            "garbageCollectors": [
                {"name": "generation 0", "count": 4_100, "time": 1_240},
                {"name": "All", "count": 4_412, "time": 2_911},
            ],
        },
    }


def task_manager_metrics(parts: Sequence[str], query: Query) -> Any:
    is_second = _known(parts[0]) == TASK_MANAGERS[1]
    values = {
        "Status.JVM.CPU.Load": 0.71,
        "Status.JVM.Memory.Heap.Used": 702 * _MIB,
        "Status.JVM.Threads.Count": 19,
        "Status.JVM.GarbageCollector.All.TimeMsPerSecond": 4 if is_second else 6,
        "Status.Flink.Memory.Managed.Used": 311 * _MIB,
        "Status.Shuffle.Netty.UsedMemory": 34 * _MIB,
    }
    return metric_list(values, query)


def task_manager_logs(parts: Sequence[str], query: Query) -> Any:
    _known(parts[0])
    return _logs("taskmanager")


def task_manager_log(parts: Sequence[str], query: Query) -> str:
    _known(parts[0])
    return _log_file("taskmanager", parts[1])


def task_manager_stdout(parts: Sequence[str], query: Query) -> str:
    _known(parts[0])
    return "".join(f"{number}> order {number * 7}\n" for number in range(50))


def task_manager_thread_dump(parts: Sequence[str], query: Query) -> Any:
    _known(parts[0])
    return _threads(
        "Source: orders (1/2)", "KeyedProcess: enrich with customer (3/4)", "headrace-network"
    )


def job_manager_config(_: Sequence[str], query: Query) -> Any:
    settings = {
        "rest.port": "8081",
        "parallelism.default": "4",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": "file:/data/checkpoints",
        "state.backend.type": "rocksdb",
        "taskmanager.numberOfTaskSlots": "6",
        "web.refresh-interval": "500 ms",
        "metrics.reporters": "prom",
        "s3.secret-key": "******",
    }
    return [{"key": key, "value": value} for key, value in settings.items()]


def job_manager_environment(_: Sequence[str], query: Query) -> Any:
    return {
        "jvm": {"version": "CPython 3.11.9", "arch": "x86_64", "options": ["-X", "utf8"]},
        "classpath": ["/opt/venv/lib/python3.11/site-packages", "/srv/ada/payments"],
    }


def job_manager_metrics(_: Sequence[str], query: Query) -> Any:
    values = {
        "numRegisteredTaskManagers": 2,
        "numRunningJobs": 3,
        "taskSlotsAvailable": 3,
        "taskSlotsTotal": 12,
        "Status.JVM.CPU.Load": 0.08,
        "Status.JVM.Memory.Heap.Used": 301 * _MIB,
        "Status.JVM.Threads.Count": 12,
    }
    return metric_list(values, query)


def job_manager_logs(_: Sequence[str], query: Query) -> Any:
    return _logs("jobmanager")


def job_manager_log(parts: Sequence[str], query: Query) -> str:
    return _log_file("jobmanager", parts[0])


def job_manager_stdout(_: Sequence[str], query: Query) -> str:
    return ""


def job_manager_thread_dump(_: Sequence[str], query: Query) -> Any:
    return _threads("MainThread", "headrace-control", "headrace-rest")


def profiles(_: Sequence[str], query: Query) -> Any:
    return {
        "profilingList": [
            _profile("FINISHED", NOW - 60_000, "profile_CPU.html"),
            _profile("FAILED", NOW - 120_000, None),
        ]
    }


def take_profile(_: Sequence[str], query: Query) -> Any:
    return _profile("RUNNING", NOW, None)


def _profile(status: str, trigger_ms: int, file: str | None) -> dict[str, Any]:
    return {
        "status": status,
        "mode": "CPU",
        "triggerTime": trigger_ms,
        "finishedTime": None if status == "RUNNING" else trigger_ms + 10_000,
        "duration": 10,
        "message": "Start profiler failed." if status == "FAILED" else None,
        "outputFile": file,
    }


def _logs(process: str) -> Any:
    return {
        "logs": [
            {"name": f"{process}.log", "size": len(_LOG), "mtime": NOW},
            {"name": f"{process}.out", "size": 0, "mtime": NOW},
        ]
    }


def _log_file(process: str, name: str) -> str:
    if name not in (f"{process}.log", f"{process}.out"):
        raise NotFoundError("This file does not exist in JobManager log dir.")
    return _LOG if name.endswith(".log") else ""


def _threads(*names: str) -> Any:
    return {
        "threadInfos": [
            {"threadName": name, "stringifiedThreadInfo": f'"{name}"\n{_STACK}\n'} for name in names
        ]
    }
