"""Answers about a job through the whole cluster, with calls by reference and encoded: while it runs, and at its end."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import JobGraph
from testkit.simulation.simulated_job import counting_job, forget_output

RANDOM = SeededRandom(13)
NAME = "answering"
SETTINGS = {
    "execution.checkpointing.interval": "20 ms",
    "pipeline.global-job-parameters.password": "hunter2",
}
LASTING = (
    "request_job_plan",
    "request_job_configuration",
    "request_checkpoint_configuration",
)
"""Questions whose answers never change while a job runs."""


class Answers:
    """A job that was cancelled, and what was told of it while it ran."""

    def __init__(self, cluster: MiniCluster) -> None:
        self.graph: JobGraph = counting_job(
            JobId.generate(RANDOM),
            NAME,
            count=10**6,
            interval_ms=1,
            parallelism=2,
            settings=SETTINGS,
        )
        self._handle = cluster.submit(self.graph)
        while not self.ask("request_checkpoint_statistics").counts.completed:
            pass
        self.running = {method: self.ask(method) for method in LASTING}
        self.details = self.ask("request_job_details")
        (self.listed,) = (each for each in self.listing() if each.job_id == self.graph.job_id)
        self.statistics = self.ask("request_checkpoint_statistics")
        self.ask("cancel_job")
        self.status = cluster.await_result(self.graph.job_id).status

    def ask(self, method: str, *arguments: Any) -> Any:
        call = getattr(self._handle.dispatcher, method)
        return self._handle.call(call(self.graph.job_id, *arguments))

    def listing(self) -> Any:
        return self._handle.call(self._handle.dispatcher.list_jobs())


@pytest.fixture(scope="module", params=["by reference", "serialized"])
def answers(request: pytest.FixtureRequest) -> Iterator[Answers]:
    settings = {"pekko.rpc.force-invocation-serialization": str(request.param != "by reference")}
    with MiniCluster(task_manager_count=2, settings=settings) as cluster:
        yield Answers(cluster)
    forget_output(NAME)


@pytest.mark.parametrize("method", LASTING)
def test_what_a_job_is_stays_the_same_at_its_end(answers: Answers, method: str) -> None:
    assert answers.status is JobStatus.CANCELED
    assert answers.ask(method) == answers.running[method]


def test_no_secret_of_a_job_is_told(answers: Answers) -> None:
    configuration = answers.running["request_job_configuration"]
    assert configuration.user_parameters == {"password": "******"}
    assert "hunter2" not in str(configuration)


def test_each_running_subtask_has_a_place_and_the_times_of_its_states(answers: Answers) -> None:
    for vertex in answers.details.vertices:
        for subtask in vertex.subtasks:
            host, _, port = subtask.endpoint.rpartition(":")
            assert host and int(port) > 0
            times = list(subtask.timestamps_ms.values())
            assert "RUNNING" in subtask.timestamps_ms and times == sorted(times)


def test_a_running_job_is_listed_with_its_running_tasks(answers: Answers) -> None:
    assert answers.listed.status is JobStatus.RUNNING and answers.listed.end_ms == -1
    assert answers.listed.tasks["RUNNING"] == sum(answers.listed.tasks.values()) == 4


def test_an_ended_job_is_listed_with_its_end(answers: Answers) -> None:
    (listed,) = (each for each in answers.listing() if each.job_id == answers.graph.job_id)
    assert listed.tasks["CANCELED"] == 4
    assert listed.start_ms == answers.listed.start_ms
    assert listed.end_ms == listed.last_modification_ms >= listed.start_ms


def test_checkpoints_of_an_ended_job_are_told_with_their_subtasks(answers: Answers) -> None:
    statistics = answers.ask("request_checkpoint_statistics")
    assert statistics.is_enabled and statistics.counts.in_progress == 0
    assert statistics.counts.completed >= answers.statistics.counts.completed > 0
    assert not math.isnan(statistics.summary.end_to_end_duration.p50)
    newest = statistics.latest_completed
    details = answers.ask("request_checkpoint_details", newest.checkpoint_id)
    assert details.checkpoint == newest and newest.subtask_count == 4
    assert [len(task.subtasks) for task in details.tasks] == [2, 2]
    told = sum(task.task.checkpointed_size_bytes for task in details.tasks)
    assert newest.checkpointed_size_bytes == told


def test_accumulators_of_an_ended_job_are_those_of_its_result(answers: Answers) -> None:
    result = answers.ask("request_job_result")
    assert answers.ask("request_accumulators") == result.accumulators
