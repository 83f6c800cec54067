"""LogicalInput: an input that cannot be read says what that means, where an earlier job left it."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cluster.error_reports import error_info_of
from headrace.core.errors import ClusterDatasetCorruptedError
from headrace.core.ids import ClusterDataSetId, IntermediateDataSetId
from headrace.network.errors import (
    ConnectionLostError,
    CorruptFileError,
    NetworkError,
    PartitionConnectionError,
    PartitionNotFoundError,
)
from headrace.task.input.input_processor import LogicalInput
from tests.unit.cluster.cluster_samples import OTHER_JOB

DATA_SET = ClusterDataSetId(OTHER_JOB, IntermediateDataSetId(b"d" * 16))


def input_raising(error: Exception, data_set: ClusterDataSetId | None) -> LogicalInput:
    def poll() -> None:
        raise error

    gate: Any = SimpleNamespace(poll=poll, number_of_channels=1)
    handler: Any = SimpleNamespace()
    return LogicalInput(gate, handler, data_set=data_set)


@pytest.mark.parametrize(
    "error",
    [
        PartitionNotFoundError("0 of it", "keeper-1"),
        PartitionConnectionError("0 of it", "keeper-1", "refused"),
        ConnectionLostError("keeper-1", "reset"),
        CorruptFileError("0.data", "a batch does not have the checksum it was written with"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_be_read_of_a_data_set_is_its_loss(error: NetworkError) -> None:
    with pytest.raises(ClusterDatasetCorruptedError) as caught:
        input_raising(error, DATA_SET).process_next()
    info = error_info_of(caught.value, "task 'Cache'")
    assert info.lost_data_set == DATA_SET and not info.recoverable
    assert str(error).partition("\n")[0] in info.text
    with pytest.raises(type(error)):
        input_raising(error, None).process_next()


def test_what_is_no_matter_of_reading_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="bad"):
        input_raising(ValueError("bad"), DATA_SET).process_next()
