"""Metrics of jobs and of the cluster, from what clients are told."""

import msgspec
import pytest

from headrace.checkpoint.handles import CheckpointMetrics
from headrace.core.barriers import SnapshotKind
from headrace.core.lifecycle import JobStatus
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.checkpoint_statistics import (
    CheckpointCounts,
    CheckpointInfo,
    CheckpointOverview,
)
from headrace.gateways.job_master import DeploymentPhase, JobDetails
from headrace.gateways.job_metrics import JobFacts, cluster_metrics, job_metrics
from headrace.gateways.resource_manager import ResourceOverview, TaskManagerInfo
from headrace.metrics.metric_name import MetricScope
from headrace.metrics.names import METRIC_NAMES
from tests.unit.cluster.cluster_samples import JOB, TM_1, TM_2

TIMES = {"CREATED": 1_000, "RUNNING": 2_000, "RESTARTING": 3_000, "FINISHED": 4_000}
STATUS_TIMES = ("createdTime", "runningTime", "restartingTime", "cancellingTime", "failingTime")


def details(
    status: JobStatus, checkpoints: CheckpointOverview | None = None, restart_count: int = 0
) -> JobDetails:
    return JobDetails(
        JOB,
        "a job",
        status,
        TIMES,
        (),
        checkpoints=checkpoints or CheckpointOverview(),
        restart_count=restart_count,
    )


@pytest.mark.parametrize(
    ("status", "uptime", "downtime", "since"),
    [
        (JobStatus.CREATED, 0, 0, {"createdTime": 9_000}),
        (JobStatus.RUNNING, 8_000, 0, {"runningTime": 8_000}),
        (JobStatus.RESTARTING, 0, 7_000, {"restartingTime": 7_000}),
        (JobStatus.FINISHED, -1, -1, {}),
    ],
)
def test_times_are_those_of_the_present_status(
    status: JobStatus, uptime: int, downtime: int, since: dict[str, int]
) -> None:
    values = job_metrics(details(status), 10_000)
    assert (values["uptime"], values["downtime"]) == (uptime, downtime)
    assert {name: values[name] for name in STATUS_TIMES if values[name]} == since


def test_a_clock_that_went_back_gives_no_time_below_zero() -> None:
    assert job_metrics(details(JobStatus.RUNNING), 1_500)["uptime"] == 0


PHASE_TIMES = ("deployingTime", "initializingTime", "allSubTasksRunningOrFinishedTime")


@pytest.mark.parametrize(
    ("phase", "name"),
    [
        (DeploymentPhase.DEPLOYING, "deployingTime"),
        (DeploymentPhase.INITIALIZING, "initializingTime"),
        (DeploymentPhase.ALL_RUNNING_OR_FINISHED, "allSubTasksRunningOrFinishedTime"),
        (DeploymentPhase.NONE, None),
    ],
)
def test_times_of_subtasks_are_those_of_what_they_are_about_until_the_job_has_ended(
    phase: DeploymentPhase, name: str | None
) -> None:
    def times(status: JobStatus) -> dict[str, float]:
        described = msgspec.structs.replace(
            details(status), deployment_phase=phase, deployment_since_ms=4_000
        )
        values = job_metrics(described, 10_000)
        return {one: values[one] for one in PHASE_TIMES if values[one]}

    assert times(JobStatus.RUNNING) == ({} if name is None else {name: 6_000})
    assert times(JobStatus.FINISHED) == {}


def test_restarts_are_counted() -> None:
    assert job_metrics(details(JobStatus.RUNNING, restart_count=3), 0)["numRestarts"] == 3


def test_facts_of_a_running_job_are_enough() -> None:
    phase = DeploymentPhase.DEPLOYING
    facts = JobFacts(JobStatus.RUNNING, TIMES, CheckpointOverview(), 3, phase, 4_000)
    described = msgspec.structs.replace(
        details(JobStatus.RUNNING, restart_count=3),
        deployment_phase=phase,
        deployment_since_ms=4_000,
    )
    assert job_metrics(facts, 10_000) == job_metrics(described, 10_000)


def checkpoint(number: int, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> CheckpointInfo:
    return CheckpointInfo(
        number,
        kind,
        5_000,
        40,
        300,
        200,
        "",
        CheckpointMetrics(in_flight_bytes=7),
        metadata_bytes=9,
    )


def test_the_last_checkpoint_is_the_newest_of_both_kinds() -> None:
    overview = CheckpointOverview(
        CheckpointCounts(triggered=9, in_progress=1, completed=6, failed=2),
        checkpoint(4),
        checkpoint(5, SnapshotKind.SAVEPOINT),
        restored_timestamp_ms=77,
    )
    values = job_metrics(details(JobStatus.RUNNING, overview), 0)
    assert {name: value for name, value in values.items() if "heckpoint" in name} == {
        "numberOfCompletedCheckpoints": 6,
        "numberOfFailedCheckpoints": 2,
        "numberOfInProgressCheckpoints": 1,
        "totalNumberOfCheckpoints": 9,
        "lastCheckpointRestoreTimestamp": 77,
        "lastCompletedCheckpointId": 5,
        "lastCheckpointSize": 200,
        "lastCheckpointFullSize": 300,
        "lastCheckpointMetadataSize": 9,
        "lastCheckpointProcessedData": 0,
        "lastCheckpointDuration": 40,
        "lastCheckpointPersistedData": 7,
        "lastCheckpointCompletedTimestamp": 5_040,
    }


def test_without_a_checkpoint_nothing_is_said_of_the_last_one() -> None:
    values = job_metrics(details(JobStatus.RUNNING), 0)
    assert {name: value for name, value in values.items() if name.startswith("last")} == {
        "lastCheckpointRestoreTimestamp": -1
    }


def test_the_cluster_is_counted() -> None:
    def info(resource_id: object, free: int) -> TaskManagerInfo:
        location = TaskManagerLocation(TM_1, "host", 1, None, "host")
        return TaskManagerInfo(TM_1, "address", location, 2, free, 7)

    overview = ResourceOverview((info(TM_1, 1), info(TM_2, 2)), 3, start_failures_per_second=0.05)
    assert cluster_metrics(overview, 4) == {
        "numRegisteredTaskManagers": 2,
        "numPendingTaskManagers": 3,
        "startWorkFailurePerSecond": 0.05,
        "numRunningJobs": 4,
        "taskSlotsAvailable": 3,
        "taskSlotsTotal": 4,
    }


def test_all_of_them_stand_in_the_table() -> None:
    overview = CheckpointOverview(latest_completed=checkpoint(1))
    known = {row.name for row in METRIC_NAMES if row.scope is MetricScope.JOB}
    assert job_metrics(details(JobStatus.RUNNING, overview), 0).keys() == known
