"""Errors as clients are told of them, versions that must agree, and leaders."""

from collections.abc import Iterator

import msgspec
import pytest

from headrace.cluster.error_reports import error_info_of, first_line
from headrace.cluster.job_master.failover.failure_history import Failure, FailureHistory
from headrace.cluster.job_master.failover.restart_strategies import NoRestart
from headrace.cluster.leadership import RESOURCE_MANAGER, EmbeddedLeaderElection
from headrace.cluster.task_executor.task_manager_services import SlotReleasedError
from headrace.cluster.versions import find_mismatch, software_versions
from headrace.core.errors import ConfigurationError, HeadraceError, RemoteError, UserCodeError
from headrace.core.ids import ResourceManagerId
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import TaskBuildError, TaskSubmissionError
from headrace.gateways.messages import ErrorInfo
from headrace.network.errors import (
    ConnectionLostError,
    CorruptBatchError,
    CorruptFileError,
    CorruptFrameError,
    CreditOverspentError,
    HandshakeError,
    IngestRefusedError,
    InsufficientBuffersError,
    InvalidChannelError,
    NetworkError,
    PartitionConnectionError,
    PartitionError,
    PartitionNotFoundError,
    ProducerFailedError,
    ProtocolError,
    RecordTooLargeError,
    SequenceGapError,
    StorageError,
    UnknownFrameError,
)
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.rpc import errors as rpc
from headrace.rpc.errors import RecipientUnreachableError


def test_a_user_error_says_cause_operator_and_place_on_its_first_line() -> None:
    error = UserCodeError("ValueError", "bad\nrecord", "Map", "f.py, line 3", "Traceback…")
    info = error_info_of(error)
    assert info.text == "ValueError: bad (in operator 'Map', f.py, line 3)"
    assert info.remote_traceback == "Traceback…"


def test_other_errors_are_placed_by_their_task() -> None:
    info = error_info_of(KeyError("x"), "task 'Map (1/2)'")
    assert first_line(info) == "KeyError: 'x' (in task 'Map (1/2)')"
    assert "KeyError" in info.remote_traceback


def test_errors_of_our_own_speak_for_themselves() -> None:
    info = error_info_of(ConfigurationError("a.b", "c", "no"))
    assert info.text == "option 'a.b' has the value 'c': no"
    assert (info.domain, info.recoverable) == ("USER", False)


def test_an_error_of_another_process_keeps_its_class_and_traceback() -> None:
    info = error_info_of(RemoteError("zoo.LionError", "roar", "Traceback of the lion"))
    assert info.class_name == "zoo.LionError"
    assert info.remote_traceback == "Traceback of the lion"


def test_a_traceback_through_our_files_alone_is_kept_from_who_can_mend_the_error() -> None:
    memory = NetworkBufferPool(4096, 4096)
    with pytest.raises(InsufficientBuffersError) as caught:
        memory.reserve("the gate", 2, 4096)
    through_this_file = error_info_of(caught.value)
    assert "Traceback" in through_this_file.remote_traceback
    assert caught.value.__traceback__ is not None
    ours = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    info = error_info_of(ours, "task 'Map (1/2)'")
    assert info.remote_traceback == ""
    assert first_line(info).startswith("insufficient number of network buffers for the gate")
    assert "taskmanager.memory.network.max" in first_line(info)
    mistake = AssertionError("of ours")
    assert "AssertionError" in error_info_of(mistake).remote_traceback


def test_a_consequence_gives_way_to_the_cause() -> None:
    history = FailureHistory(NoRestart())
    lost = Failure.of_error(ConnectionLostError("tm-2", "reset by peer"))
    cause = Failure(ErrorInfo("UserCodeError", "bad", "USER", True))
    late = Failure(ErrorInfo("UserCodeError", "also bad", "USER", True))
    history.decide(lost, 0)
    for failure in (cause, late):
        history.refine(failure)
    assert history.cause == cause
    (entry,) = history.entries
    assert entry.root.failure == cause
    assert [each.failure for each in entry.concurrent] == [lost, late]


def _subclasses(base: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for each in base.__subclasses__():
        if each.__module__ == base.__module__:
            yield each
            yield from _subclasses(each)


# Every error of the exchange, so that a new one is placed when it is made.
FOLLOWS_FROM_A_PEER = {
    NetworkError: False,
    ProtocolError: False,
    UnknownFrameError: False,
    SequenceGapError: False,
    CreditOverspentError: False,
    CorruptBatchError: False,
    CorruptFrameError: False,
    HandshakeError: False,
    ConnectionLostError: True,
    PartitionError: True,
    PartitionNotFoundError: True,
    PartitionConnectionError: True,
    ProducerFailedError: True,
    InsufficientBuffersError: False,
    RecordTooLargeError: False,
    InvalidChannelError: False,
    StorageError: False,
    CorruptFileError: False,
    IngestRefusedError: True,
}


def test_every_error_of_the_exchange_says_whether_it_follows_from_the_end_of_a_peer() -> None:
    every = {NetworkError, *_subclasses(NetworkError)}
    assert {each: each.is_consequence for each in every} == FOLLOWS_FROM_A_PEER


@pytest.mark.parametrize(
    ("error", "is_consequence"),
    [
        (ProducerFailedError("p", "it was cancelled"), True),
        (RecipientUnreachableError("tm", "submit_task", "closed"), True),
        (TaskSubmissionError("no slot"), True),
        (SlotReleasedError("freed"), True),
        (TaskBuildError("ValueError: bad"), False),
        (rpc.RpcHandshakeError("tm", "wrong version"), False),
        (UserCodeError("ValueError", "bad", "Map", "f.py, line 3", ""), False),
        (KeyError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_tells_the_job_master_whether_something_else_failed_before(
    error: Exception, is_consequence: bool
) -> None:
    sent = msgspec.msgpack.encode(error_info_of(error))
    assert Failure(msgspec.msgpack.decode(sent, type=ErrorInfo)).is_consequence is is_consequence


def test_versions_of_one_process_agree_with_themselves() -> None:
    assert find_mismatch(software_versions(), software_versions(), "tm") is None


def test_the_first_version_that_differs_is_named_with_what_to_do() -> None:
    worker = {**software_versions(), "pyarrow": "1.0"}
    mismatch = find_mismatch(software_versions(), worker, "tm-1")
    assert mismatch is not None
    assert str(mismatch).startswith("version of pyarrow differs")
    assert "PYSPARK_PYTHON" in str(mismatch)
    brought = find_mismatch(software_versions(), worker, "tm-1", "environment:requirements@1")
    assert "let python.requirements, or the archive with the interpreter, install" in str(brought)


def test_every_grant_is_a_session_of_its_own() -> None:
    election = EmbeddedLeaderElection(SeededRandom(1))
    granted = {election.grant(RESOURCE_MANAGER, ResourceManagerId) for _ in range(3)}
    assert len(granted) == 3
