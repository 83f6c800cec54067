"""An executor that keeps what is submitted, and ways to look at it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import cloudpickle

from headrace.api.client.program_end import forget_jobs
from headrace.api.executors import set_active_executor
from headrace.core.ids import ClusterDataSetId
from headrace.core.operator_spec import OperatorTypes
from headrace.gateways.messages import DataSetInfo
from headrace.graph.job_graph import ChainedOperator, JobGraph


class RecordingExecutor:
    name = "recording"

    def __init__(self, parallelism: int = 4) -> None:
        self.submitted: list[JobGraph] = []
        self.client: Any = SimpleNamespace(has_told_end=True, outlives_program=False)
        self.data_sets: list[DataSetInfo] = []
        self.released: list[ClusterDataSetId] = []
        self._parallelism = parallelism

    def submit(self, job_graph: JobGraph) -> Any:
        self.submitted.append(job_graph)
        return self.client

    def default_parallelism(self) -> int:
        return self._parallelism

    def known_parallelism(self) -> int:
        return self.default_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        return tuple(self.data_sets)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self.released.append(data_set)
        self.data_sets = [info for info in self.data_sets if info.data_set != data_set]

    def close(self) -> None:
        pass

    @property
    def last(self) -> JobGraph:
        return self.submitted[-1]


@contextmanager
def recording(parallelism: int = 4) -> Iterator[RecordingExecutor]:
    executor = RecordingExecutor(parallelism)
    set_active_executor(executor)
    try:
        yield executor
    finally:
        set_active_executor(None)
        forget_jobs()


def operators(graph: JobGraph) -> dict[str, ChainedOperator]:
    return {one.name: one for vertex in graph.vertices for one in vertex.operators}


def spec_of(graph: JobGraph, name: str) -> Any:
    return cloudpickle.loads(operators(graph)[name].payload)


def types_of(graph: JobGraph, name: str) -> OperatorTypes:
    return cloudpickle.loads(operators(graph)[name].types_payload)


def plan_nodes(plan: str) -> list[dict[str, Any]]:
    return json.loads(plan)["nodes"]
