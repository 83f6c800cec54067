"""ReconnectPolicy: which losses of a connection a reader of a stored result gets over, and for how long it tries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import (
    ConnectionLostError,
    CorruptFrameError,
    HandshakeError,
    NetworkError,
    PartitionConnectionError,
    SequenceGapError,
)
from headrace.network.gates.partition_requests import PartitionRequestBackoff, ReconnectPolicy

LOST = ConnectionLostError("service", "the connection was closed unexpectedly")
REFUSED = PartitionConnectionError("p", "service", "connection refused")


def reader(*, is_external: bool = True) -> ReconnectPolicy:
    return ReconnectPolicy(PartitionRequestBackoff(100, 1000, 10_000), is_external=is_external)


def test_a_result_that_is_gone_with_its_task_manager_is_not_waited_for() -> None:
    assert reader(is_external=False).lost(LOST, 3) is LOST


@pytest.mark.parametrize("error", [HandshakeError("p", "?"), SequenceGapError("p", "0", 1, 2)])
def test_a_peer_that_breaks_the_protocol_is_not_asked_again(error: NetworkError) -> None:
    assert reader().lost(error, 3) is error


def test_a_frame_that_was_changed_on_its_way_is_asked_for_again() -> None:
    assert reader().lost(CorruptFrameError("p", "changed"), 3) == 100


def test_waits_double_and_end_with_the_first_error() -> None:
    read_on = reader()
    assert not read_on.has_begun
    waits: list[float] = []
    answer = read_on.lost(LOST, 3)
    assert read_on.has_begun
    while not isinstance(answer, NetworkError):
        waits.append(answer)
        answer = read_on.lost(REFUSED, 3)
    assert waits == [100, 200, 400, 800, 1000]
    assert answer is LOST


@given(steps=st.lists(st.integers(0, 3), max_size=60))
def test_who_gets_further_has_all_its_tries_again(steps: list[int]) -> None:
    read_on = reader()
    position, without_progress = 0, 0
    for step in steps:
        position += step
        without_progress = 1 if step or not read_on.has_begun else without_progress + 1
        answer = read_on.lost(LOST, position)
        if without_progress > 5:
            assert answer is LOST
            return
        assert answer == [100, 200, 400, 800, 1000][without_progress - 1]
