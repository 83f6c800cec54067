"""The body of the Spark tasks that push a DataFrame: how it ends when nobody takes its rows any more."""

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.dataframes import push
from headrace.spark.dataframes.push import push_body


@pytest.fixture
def standard_error(monkeypatch: pytest.MonkeyPatch) -> object:
    """What standard error is now; put back after the test."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    return sys.stderr


def test_a_task_that_cannot_push_fails_with_the_cause_and_prints_nothing_more(
    standard_error: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(target: Any, batches: Any) -> Iterator[pa.RecordBatch]:
        raise ConnectionResetError("the subtask is gone")
        yield

    monkeypatch.setattr(push, "push_partition", broken)
    with pytest.raises(ConnectionResetError, match="the subtask is gone"):
        list(push_body(target=None)([]))  # type: ignore[arg-type]
    # As Spark's daemon does when it cannot flush the socket of a cancelled task.
    print("BrokenPipeError", file=sys.stderr)
    sys.stderr.close()
    assert capfd.readouterr().err == ""


def test_a_task_that_pushed_everything_keeps_its_standard_error(
    standard_error: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = pa.RecordBatch.from_pydict({"row_count": [3]})
    monkeypatch.setattr(push, "push_partition", lambda target, batches: iter([pushed]))
    assert list(push_body(target=None)([])) == [pushed]  # type: ignore[arg-type]
    assert sys.stderr is standard_error
