"""What the coordinator of a DataFrame source says without Spark being asked."""

from typing import Any

import msgspec
import pytest

from headrace.cluster.job_master.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import SourceState
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId, OperatorId
from headrace.spark.dataframe_coordinator import DataFrameCoordinator


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
    return DataFrameCoordinator(context, no_dataframe, b"", None)


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
