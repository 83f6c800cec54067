"""The guards at the entrance of a worker: a rerun by Spark and a process that was used before host no TaskManager."""

from dataclasses import dataclass

import pytest

from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.ids import ResourceId, ResourceManagerId
from headrace.spark.workers import worker
from headrace.spark.workers.worker import WorkerSpec, run_worker

SPEC = WorkerSpec(
    TaskManagerConfiguration(
        ResourceId("tm-1"), "headrace.tcp://nowhere:1/rpc/rm", ResourceManagerId(b"r" * 16), b"", {}
    ),
    driver_host="127.0.0.1",
    log_level=40,
)


@dataclass
class Attempt:
    """A stand-in for Spark's TaskContext."""

    number: int

    def get(self) -> "Attempt":
        return self

    def attemptNumber(self) -> int:
        return self.number


def test_a_rerun_by_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TaskContext", Attempt(1))
    assert list(run_worker(SPEC, None, [0])) == ["rerun refused"]


def test_a_process_hosts_one_taskmanager_in_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TaskContext", Attempt(0))
    monkeypatch.setattr(worker, "_process", worker._ProcessUse(is_used=True))
    with pytest.raises(RuntimeError, match="has hosted a TaskManager before"):
        run_worker(SPEC, None, [0])
