"""What a consumer's half of a connection takes, before memory is taken for it."""

import pytest

from headrace.network.consumer_session import ConsumerSession
from headrace.network.errors import ProtocolError
from headrace.network.framing import Frame
from headrace.network.wire import TEXT_BYTES_MAX, Error, Event, Schema, TaskEvent


class NoLink:
    """A connection that says nothing."""

    peer = "the producer"

    def wake(self) -> None:
        """Nothing waits."""


SMALL = [Event(0, 0, 0, 3, 0, 7), Error(0, 1, b""), TaskEvent(0, b"")]


@pytest.mark.parametrize("frame", SMALL, ids=lambda frame: type(frame).__name__)
def test_a_body_that_is_larger_than_any_honest_one_is_refused(frame: Frame) -> None:
    session = ConsumerSession(NoLink())
    assert session.check_body(type(frame), frame, TEXT_BYTES_MAX) is None
    with pytest.raises(ProtocolError, match=f"a body of {TEXT_BYTES_MAX + 1} bytes"):
        session.check_body(type(frame), frame, TEXT_BYTES_MAX + 1)


def test_a_schema_may_be_larger_than_a_text() -> None:
    frame = Schema(0, 1, b"")
    assert ConsumerSession(NoLink()).check_body(Schema, frame, TEXT_BYTES_MAX + 1) is None
