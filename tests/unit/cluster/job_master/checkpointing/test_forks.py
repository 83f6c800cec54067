"""A fork is a job of its own: it takes nothing over from the one that it goes on from, whatever else it is told."""

from pathlib import Path

import pytest

from headrace.checkpoint.options import FORK, RECOVERY_CLAIM_MODE, RECOVERY_PATH
from headrace.core.barriers import SnapshotKind
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.checkpointing.durable_jobs import (
    OTHER_JOB,
    Jobs,
    located,
    take,
)


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def test_a_fork_is_another_lineage_and_commits_nothing(jobs: Jobs) -> None:
    first = jobs.start()
    saved = take(first, kind=SnapshotKind.SAVEPOINT)
    fork = jobs.start(OTHER_JOB, **{RECOVERY_PATH.key: saved.uri, FORK.key: "true"})
    assert fork.lineage_id != first.lineage_id
    assert fork.take_id() == 2
    assert jobs.restored is not None
    (operator,) = jobs.restored.metadata.operators
    assert operator.subtasks[0].committables == ()
    assert operator.subtasks[0].chunks != ()
    # By this lineage sinks are asked what they have: a fork with the same target would write it once more.
    assert jobs.restored.metadata.lineage == first.lineage_id
    take(first)


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT])
def test_a_fork_claims_nothing(jobs: Jobs, kind: SnapshotKind) -> None:
    """Claimed, its parent's snapshot would go with the fork's first checkpoint, and a savepoint too."""
    snapshot = take(jobs.start(), kind=kind, shares=True)
    files = sorted(path for path in Path(snapshot.uri).rglob("*") if path.is_file())
    parents = jobs.files()
    claims = {RECOVERY_PATH.key: snapshot.uri, FORK.key: "true", RECOVERY_CLAIM_MODE.key: "claim"}
    fork = jobs.start(OTHER_JOB, **claims)
    assert located(fork)[1].kind is SnapshotKind.FULL_CHECKPOINT
    take(fork)
    fork.close(JobStatus.FINISHED)
    assert files and all(path.exists() for path in files)
    assert jobs.files() == parents
