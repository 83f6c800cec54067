"""Commits at the end of a job in BATCH mode: once, or not at all, and nothing that is prepared stays."""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.cluster.job_master.checkpointing.commits.sink_commits import CommitFailedError
from headrace.common import Encoder
from headrace.core.config import Settings
from headrace.datastream.connectors.file_system import FileSink
from headrace.functions.sink import staging_owner
from headrace.graph.job_graph import ChainedOperator, JobGraph
from headrace.spark.batch import batch_commits
from headrace.spark.batch.batch_commits import BatchCommits, CommitTurn
from headrace.task.batch.stage_rows import StageReport
from tests.unit.api.recording import recording

RETRIES = Settings({"sink.committer.retries": "2"})


@dataclass
class Target:
    """A committer that notes what it is asked, and fails as often as it is told. `turn`: cancelled at each commit."""

    log: list[str]
    failures: list[Exception] = field(default_factory=list[Exception])
    turn: CommitTurn | None = None

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        self.log.append(b" ".join(committables).decode())
        if self.turn is not None:
            assert not self.turn.forestall_commits(), "too late"
        if self.failures:
            raise self.failures.pop(0)

    def delete_leftovers(self, scope: str, owner: str) -> None:
        self.log.append(f"deletes {owner} {scope}")

    def close(self) -> None:
        self.log.append("closes")


def program(folder: Path) -> tuple[JobGraph, list[ChainedOperator]]:
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        texts = env.from_collection(["a"], Types.STRING())
        for name in ("one", "two"):
            builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
            texts.sink_to(builder.build()).name(name)
        env.execute_async("writing")
    graph = executor.last
    return graph, [one for vertex in graph.vertices for one in vertex.operators if one.committer]


@dataclass
class Job:
    graph: JobGraph
    sinks: list[ChainedOperator]
    one: Target
    two: Target
    log: list[str]
    turn: CommitTurn

    def commits(self) -> BatchCommits:
        return BatchCommits(self.graph, RETRIES, self.turn, lambda: self.log.append("no task runs"))

    def reports(self) -> list[StageReport]:
        """Those of two subtasks, in the order in which they ended."""
        return [
            StageReport(
                index, sink.operator_id, committables=(f"{sink.name[-3:]}-{index}".encode(),)
            )
            for sink in self.sinks
            for index in (1, 0)
        ]

    def ends(self) -> list[str]:
        """What the log holds when the job has ended, behind its commits."""
        job = self.graph.job_id
        lines = ["no task runs"]
        for sink in self.sinks:
            owner = staging_owner(job, sink.operator_id)
            lines += [f"deletes {owner} {job.hex()}/{sink.operator_id.hex()}", "closes"]
        return lines


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    graph, sinks = program(tmp_path)
    log: list[str] = []
    made = Job(graph, sinks, Target(log), Target(log), log, CommitTurn())
    targets = dict(zip([one.operator_id for one in sinks], (made.one, made.two), strict=True))
    monkeypatch.setattr(
        batch_commits, "create_committer", lambda operator, *_: targets[operator.operator_id]
    )
    monkeypatch.setattr(batch_commits, "commit_pause_ms", lambda _: 0.0)
    return made


def test_sinks_commit_in_turn_and_what_is_left_goes_when_no_task_runs(job: Job) -> None:
    with job.commits() as commits:
        commits.commit(job.reports())
    assert job.log == ["one-0 one-1", "two-0 two-1", *job.ends()]


def test_a_commit_that_fails_is_tried_again(job: Job) -> None:
    job.one.failures[:] = [OSError("once"), OSError("twice")]
    with job.commits() as commits:
        commits.commit(job.reports())
    assert job.log[:4] == ["one-0 one-1"] * 3 + ["two-0 two-1"]


def test_the_error_of_a_commit_that_is_given_up_names_the_sinks_whose_output_stays(
    job: Job,
) -> None:
    job.two.failures[:] = [OSError("full")] * 3
    with (
        pytest.raises(
            CommitFailedError, match=r"'Sink: two'.*full.*committed already: 'Sink: one'"
        ),
        job.commits() as commits,
    ):
        commits.commit(job.reports())
    assert job.log == ["one-0 one-1", *["two-0 two-1"] * 3, *job.ends()]


def test_a_job_that_fails_or_is_cancelled_before_its_commits_leaves_nothing(job: Job) -> None:
    with pytest.raises(ValueError, match="of a function"), job.commits():
        raise ValueError("of a function")
    assert job.log == job.ends()
    job.log.clear()
    assert job.turn.forestall_commits()
    with pytest.raises(CancelledError), job.commits() as commits:
        commits.commit(job.reports())
    assert job.log == job.ends()


def test_a_cancellation_amid_commits_comes_too_late_and_ends_the_retries(job: Job) -> None:
    job.one.turn = job.turn
    with job.commits() as commits:
        commits.commit(job.reports())
    assert job.log[:2] == ["one-0 one-1", "two-0 two-1"]


def test_a_commit_that_fails_after_a_cancellation_is_not_tried_again(job: Job) -> None:
    job.one.turn = job.turn
    job.one.failures[:] = [OSError("full")]
    with pytest.raises(CommitFailedError, match="full"), job.commits() as commits:
        commits.commit(job.reports())
    assert job.log == ["one-0 one-1", *job.ends()]


def test_what_cannot_be_deleted_costs_neither_the_result_nor_what_other_sinks_left(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(scope: str, owner: str) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(job.one, "delete_leftovers", refuse)
    with job.commits() as commits:
        commits.commit(job.reports())
    assert job.log[-2:] == job.ends()[-2:]
    assert "sink 'Sink: one'" in caplog.text and "read-only" in caplog.text
