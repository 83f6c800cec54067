"""Answers of a job about itself: every one of a running job is the archive's once it has ended."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails
from headrace.gateways.messages import Acknowledge, ErrorInfo, ExecutionReport, TaskMetrics
from tests.unit.cluster.cluster_samples import JOB, TM_1, attempt, vertex_id
from tests.unit.cluster.job_master.job_master_world import World

S = ExecutionState
TASK = attempt(0)
ERROR = ErrorInfo("UserCodeError", "ValueError: bad", "USER", False)
SETTINGS = {
    "execution.checkpointing.interval": "10 s",
    "pipeline.max-parallelism": "64",
    "pipeline.global-job-parameters.city": "Basel",
}


class TellingWorld(World):
    """A job of one task on a TaskManager that tells its metrics."""

    def __init__(self, settings: dict[str, str] = SETTINGS) -> None:
        self.metrics = {"numRecordsIn": 5.0, "map.late": 2.0, "map.depth": 9.0}
        super().__init__(
            settings,
            submit_task=Acknowledge(),
            request_task_metrics=lambda *_: (TaskMetrics(TASK, dict(self.metrics), ("map.late",)),),
            trigger_checkpoint=None,
            notify_checkpoint_complete=None,
            free_slot=Acknowledge(),
        )
        self.loop.run_for(10)

    def report(self, state: ExecutionState, error: ErrorInfo | None = None) -> None:
        metrics = (
            TaskMetrics(TASK, dict(self.metrics), ("map.late",)) if state.is_terminal else None
        )
        report = ExecutionReport(TASK, state, error, metrics)
        self.ask(self.gateway.update_task_execution_state(report))

    def ask(self, call: Any) -> Any:
        return self.loop.run_until(call)

    def checkpoint(self) -> int:
        """Take one checkpoint, and return its id."""
        taking = self.loop.create_task(self.gateway.trigger_checkpoint())
        self.loop.run_for(10)
        assert self.details.checkpoints.counts.in_progress == 1
        statistics = self.ask(self.gateway.request_checkpoint_statistics())
        checkpoint_id = statistics.history[0].checkpoint_id
        metrics = CheckpointMetrics(sync_ms=2, written_bytes=7)
        snapshot = TaskStateSnapshot()
        self.ask(self.gateway.acknowledge_checkpoint(TASK, checkpoint_id, snapshot, metrics))
        self.loop.run_for(10)
        return taking.result()

    @property
    def details(self) -> JobDetails:
        return self.ask(self.gateway.request_job_details())


@pytest.fixture
def world() -> Iterator[TellingWorld]:
    world = TellingWorld()
    yield world
    world.close()


def test_the_last_answers_of_a_job_are_those_of_the_archive(world: TellingWorld) -> None:
    world.report(S.RUNNING)
    checkpoint_id = world.checkpoint()
    world.report(S.FINISHED)
    world.loop.run_for(100)
    archived = world.ends[0].job
    assert len(world.ends) == 1
    gateway = world.gateway
    assert archived.details.status is JobStatus.FINISHED
    assert world.ask(gateway.request_job_details()) == archived.details
    assert world.ask(gateway.request_job_plan()) == archived.plan
    assert world.ask(gateway.request_job_configuration()) == archived.configuration
    assert world.ask(gateway.request_accumulators()) == archived.result.accumulators
    assert world.ask(gateway.request_checkpoint_statistics()) == archived.checkpoint_statistics
    configuration = world.ask(gateway.request_checkpoint_configuration())
    assert configuration == archived.checkpoint_configuration
    details = world.ask(gateway.request_checkpoint_details(checkpoint_id))
    assert details is not None and details == archived.checkpoint(checkpoint_id)
    assert world.job_master.overview == archived.overview
    assert archived.overview.tasks["FINISHED"] == 1


def test_what_a_running_job_tells_is_there_once_it_has_ended(world: TellingWorld) -> None:
    world.report(S.RUNNING)
    checkpoint_id = world.checkpoint()
    gateway = world.gateway
    plan = world.ask(gateway.request_job_plan())
    configuration = world.ask(gateway.request_job_configuration())
    checkpoint = world.ask(gateway.request_checkpoint_details(checkpoint_id))
    accumulators = world.ask(gateway.request_accumulators())
    world.report(S.FAILED, ERROR)
    world.loop.run_for(100)
    archived = world.ends[0].job
    assert len(world.ends) == 1
    assert archived.details.status is JobStatus.FAILED
    assert (archived.plan, archived.configuration) == (plan, configuration)
    assert archived.checkpoint(checkpoint_id) == checkpoint
    assert archived.result.accumulators == accumulators == {"map.late": 2.0}


def test_details_tell_place_and_times_of_each_subtask(world: TellingWorld) -> None:
    world.loop.run_for(40)
    world.report(S.RUNNING)
    details = world.details
    (vertex,) = details.vertices
    (subtask,) = vertex.subtasks
    assert (subtask.resource_id, subtask.endpoint) == (TM_1, "worker:1")
    assert list(subtask.timestamps_ms) == ["CREATED", "SCHEDULED", "DEPLOYING", "RUNNING"]
    assert subtask.timestamps_ms["RUNNING"] >= subtask.timestamps_ms["DEPLOYING"] + 40
    assert (vertex.max_parallelism, vertex.slot_sharing_group) == (128, "default")
    assert (details.max_parallelism, details.job_type) == (64, "STREAMING")


def test_a_failure_tells_where_its_task_ran(world: TellingWorld) -> None:
    world.report(S.RUNNING)
    world.report(S.FAILED, ERROR)
    world.loop.run_for(100)
    archived = world.ends[0].job
    assert len(world.ends) == 1
    (exception,) = archived.details.exceptions
    assert (exception.root.resource_id, exception.root.endpoint) == (TM_1, "worker:1")
    assert exception.root.task == "vertex 1 (1/1) - execution #0"
    assert not archived.details.exceptions_truncated
    ((subtask,),) = (each.subtasks for each in archived.details.vertices)
    assert subtask.error == ERROR


def test_a_line_in_a_list_counts_subtasks_and_tells_when_one_last_changed(
    world: TellingWorld,
) -> None:
    world.loop.run_for(30)
    world.report(S.RUNNING)
    changed_ms = world.loop.clock.now_ms()
    world.loop.run_for(30)
    overview = world.job_master.overview
    assert (overview.job_id, overview.status, overview.end_ms) == (JOB, JobStatus.RUNNING, -1)
    assert overview.tasks == {state.name: int(state is S.RUNNING) for state in S}
    assert overview.last_modification_ms == changed_ms > overview.start_ms
    assert overview.max_parallelism == 64


def test_statistics_know_whether_checkpoints_are_taken_periodically(world: TellingWorld) -> None:
    assert world.ask(world.gateway.request_checkpoint_statistics()).is_enabled
    never = TellingWorld({})
    assert not never.ask(never.gateway.request_checkpoint_statistics()).is_enabled
    never.close()


def test_so_many_checkpoints_are_remembered_as_the_setting_says() -> None:
    world = TellingWorld(SETTINGS | {"web.checkpoints.history": "1"})
    world.report(S.RUNNING)
    ids = [world.checkpoint(), world.checkpoint()]
    history = world.ask(world.gateway.request_checkpoint_statistics()).history
    world.close()
    assert [each.checkpoint_id for each in history] == ids[1:]


def test_a_checkpoint_that_nobody_remembers_has_no_details(world: TellingWorld) -> None:
    assert world.ask(world.gateway.request_checkpoint_details(99)) is None


def test_the_plan_has_the_jobs_vertices(world: TellingWorld) -> None:
    (node,) = world.ask(world.gateway.request_job_plan()).nodes
    assert (node.vertex_id, node.description) == (vertex_id(1), "operator 1<br/>")


def test_the_configuration_has_the_clusters_settings_too(world: TellingWorld) -> None:
    configuration = world.ask(world.gateway.request_job_configuration())
    assert configuration.settings["heartbeat.timeout"] == "1 h"
    assert configuration.user_parameters == {"city": "Basel"}
