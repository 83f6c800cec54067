"""Answers of a DataFrame source's coordinator that need no Spark."""

from typing import Any

import msgspec
import pytest

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import SourceState
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId, OperatorId
from headrace.network.errors import ConnectionLostError, IngestRefusedError, NetworkError
from headrace.spark.dataframes.dataframe_coordinator import DataFrameCoordinator, push_error
from headrace.spark.session.authentication import TaskSecrets


def coordinator(**settings: str) -> DataFrameCoordinator:
    context = CoordinatorContext(
        JobId(bytes(16)),
        OperatorId(bytes(16)),
        "flights",
        2,
        Settings(settings),
        lambda *_: None,
        lambda _: None,
        lambda _: None,
    )
    no_dataframe: Any = None
    return DataFrameCoordinator(context, no_dataframe, TaskSecrets(b"", None))


def test_a_savepoint_without_checkpoints_is_refused_as_rows_may_come_out_otherwise() -> None:
    with pytest.raises(ProgramError, match=r"'flights' reads a DataFrame.*checkpointing\.interval"):
        coordinator().checkpoint(1)


def test_what_identifies_the_plan_comes_back_from_a_checkpoint() -> None:
    state = SourceState(True, "4 partitions, plan 1a", 3, "copies/1")
    restored = coordinator(**{"execution.checkpointing.interval": "1 s"})
    restored.reset(7, msgspec.msgpack.encode(state))
    assert msgspec.msgpack.decode(restored.checkpoint(8), type=SourceState) == state


def test_a_checkpoint_before_the_announcement_holds_no_plan() -> None:
    fresh = coordinator(**{"execution.checkpointing.interval": "1 s"})
    assert msgspec.msgpack.decode(fresh.checkpoint(1), type=SourceState) == SourceState(
        False, "", 0, ""
    )


def test_a_function_that_fails_inside_spark_is_told_with_its_line_and_that_of_the_source() -> None:
    reason = (
        "ValueError: no such flight\nPythonException: Traceback (most recent call last):\n"
        '  File "/programs/flights.py", line 7, in check\nValueError: no such flight'
    )
    error = push_error("operator 'rows', /programs/program.py, line 20", reason)
    assert str(error).partition("\n")[0] == (
        "ValueError: no such flight (/programs/flights.py, line 7, in the Spark job that reads the DataFrame of "
        "operator 'rows', /programs/program.py, line 20)"
    )
    assert error.recoverable
    assert not error.is_consequence


@pytest.mark.parametrize(
    "cause",
    [
        ConnectionLostError("tm-2", "connection refused"),
        IngestRefusedError("tm-2", "the source subtask has ended"),
    ],
)
def test_a_push_whose_subtask_is_gone_may_be_tried_again_and_is_nobodys_first_cause(
    cause: NetworkError,
) -> None:
    line = f"{type(cause).__module__}.{type(cause).__qualname__}: {cause}"
    error = push_error("operator 'rows'", f"{line}\nPythonException: ...")
    assert error.recoverable
    assert error.is_consequence
