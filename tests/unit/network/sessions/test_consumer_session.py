"""A consumer's half of a connection: the frames that it takes, and the end of the others."""

import pytest

from headrace.network.errors import (
    ConnectionLostError,
    CreditOverspentError,
    NetworkError,
    ProtocolError,
    SequenceGapError,
)
from headrace.network.sessions.consumer_session import (
    REFUSED_BYTES_MAX,
    UNCLAIMED_BODY_BYTES_MAX,
    ConsumerSession,
)
from headrace.network.wire.frames import (
    TEXT_BYTES_MAX,
    Backlog,
    Cancel,
    Data,
    Error,
    Event,
    Schema,
)
from headrace.network.wire.framing import Frame, encode
from tests.unit.network.exchange import partition_id


class NoLink:
    """A connection that says nothing."""

    peer = "the producer"

    def wake(self) -> None:
        """Nothing waits."""


SMALL = [Event(0, 0, 0, 3, 0, 7), Error(0, 1, b"")]


@pytest.mark.parametrize("frame", SMALL, ids=lambda frame: type(frame).__name__)
def test_a_body_that_is_larger_than_any_honest_one_is_refused(frame: Frame) -> None:
    session = ConsumerSession(NoLink())
    assert session.check_body(type(frame), frame, TEXT_BYTES_MAX) is None
    with pytest.raises(ProtocolError, match=f"a body of {TEXT_BYTES_MAX + 1} bytes"):
        session.check_body(type(frame), frame, TEXT_BYTES_MAX + 1)


def test_a_schema_may_be_larger_than_a_text() -> None:
    frame = Schema(0, 1, b"")
    assert ConsumerSession(NoLink()).check_body(Schema, frame, TEXT_BYTES_MAX + 1) is None


class Receiver:
    """A channel that takes nothing of what is numbered 7."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.error: NetworkError | None = None
        self.reported: list[tuple[int, str]] = []

    def place_data(self, frame: Data, body_length: int) -> None:
        if body_length > 1000:
            raise CreditOverspentError("p", "0", 1, 2)

    def schema_received(self, frame: Schema) -> None:
        raise AssertionError

    def data_received(self, frame: Data) -> None:
        if frame.sequence == 7:
            raise SequenceGapError("p", "0", 1, 7)
        self.sequences.append(frame.sequence)

    def event_received(self, frame: Event) -> None:
        raise AssertionError

    def backlog_received(self, frame: Backlog) -> None:
        raise AssertionError

    def error_received(self, code: int, text: str) -> None:
        self.reported.append((code, text))

    def lost(self, error: NetworkError) -> None:
        assert self.error is None
        self.error = error


REQUEST = {
    "partition_id": partition_id(),
    "subpartition_index": 0,
    "initial_credit": 2,
    "credit_max": 10,
    "segment_size": 1000,
}


def opened() -> tuple[ConsumerSession, list[Receiver]]:
    """A session with two channels, of which the requests have left."""
    session, receivers = ConsumerSession(NoLink()), [Receiver(), Receiver()]
    for receiver in receivers:
        session.open_channel(receiver, **REQUEST)
    session.take_output()
    return session, receivers


def data(channel: int, sequence: int, body: bytes = b"") -> Data:
    return Data(channel, sequence, 1, 0, 0, 0, (), body)


def test_a_channel_that_refuses_a_frame_is_cancelled_and_the_others_go_on() -> None:
    session, (bad, good) = opened()
    session.frame_received(data(0, 7))
    session.frame_received(data(0, 1))
    session.frame_received(data(1, 0))
    assert isinstance(bad.error, SequenceGapError) and bad.sequences == []
    assert good.error is None and good.sequences == [0]
    assert session.take_output() == encode(Cancel(0))
    assert session.channel_count == 1 and session.dropped_frame_count == 1


def test_a_body_that_its_channel_refuses_is_read_past() -> None:
    session, (bad, good) = opened()
    assert session.check_body(Data, data(0, 0), 1001) is None
    assert isinstance(bad.error, CreditOverspentError)
    session.frame_received(data(0, 0, b"x" * 1001))
    session.frame_received(data(1, 0))
    assert good.sequences == [0] and session.take_output() == encode(Cancel(0))


def test_a_refused_body_beyond_all_reason_ends_the_connection() -> None:
    session, (bad, good) = opened()
    with pytest.raises(ProtocolError, match="a body of"):
        session.check_body(Data, data(0, 0), UNCLAIMED_BODY_BYTES_MAX + 1)
    assert isinstance(bad.error, CreditOverspentError) and good.error is None


def test_a_producer_that_goes_on_with_a_refused_channel_for_ever_is_disconnected() -> None:
    session, _ = opened()
    session.frame_received(data(0, 7))
    body = b"x" * (1 << 20)
    for sequence in range(REFUSED_BYTES_MAX // len(body) - 1):
        session.frame_received(data(0, sequence, body))
    with pytest.raises(ProtocolError, match="it still sends data for channel 0"):
        for sequence in range(2):
            session.frame_received(data(0, sequence, body))


def test_what_comes_for_a_channel_that_was_only_closed_is_dropped_without_end() -> None:
    session, _ = opened()
    session.close_channel(0, tell_producer=True)
    body = b"x" * (1 << 20)
    for sequence in range(REFUSED_BYTES_MAX // len(body) + 2):
        session.frame_received(data(0, sequence, body))
    assert session.dropped_frame_count == REFUSED_BYTES_MAX // len(body) + 2


def test_channels_learn_once_why_their_connection_ended_and_say_nothing_more_on_it() -> None:
    session, receivers = opened()

    class Chatty(Receiver):
        """Says what channels say while they end, of others too: what was theirs is granted elsewhere."""

        def lost(self, error: NetworkError) -> None:
            super().lost(error)
            for channel in range(3):
                session.add_credit(channel, 1)
                session.close_channel(channel, tell_producer=True)

    chatty = Chatty()
    session.open_channel(chatty, **REQUEST)
    session.take_output()
    first = ConnectionLostError("p", "it broke")
    session.close(first)
    session.close(ConnectionLostError("p", "it broke again"))
    assert [receiver.error for receiver in (*receivers, chatty)] == [first] * 3
    assert session.channel_count == 0 and session.take_output() == []


def test_a_channel_whose_producer_reports_an_error_is_closed_by_that() -> None:
    session, (failing, good) = opened()
    session.frame_received(Error(0, 3, b"why"))
    assert failing.reported == [(3, "why")] and session.channel_count == 1
    session.frame_received(data(0, 0))
    session.frame_received(Error(0, 3, b"again"))
    lost = ConnectionLostError("p", "it broke")
    session.close(lost)
    assert failing.reported == [(3, "why")] and failing.sequences == []
    assert failing.error is None and good.error is lost
