"""A mistake of ours in the network thread: the channels of that connection fail with it, whoever's side makes it."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.network.errors import ConnectionLostError
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.producer_session import ProducerSession
from tests.integration.network.conftest import Edge
from tests.unit.network.exchange import drain, gate, next_element, numbers, writer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("edge", ["unix", "tcp", "tls"], indirect=True),
]


@pytest.mark.parametrize(
    ("session_type", "method"),
    [
        (ConsumerSession, "frame_received"),
        (ConsumerSession, "take_output"),
        (ProducerSession, "channel_message_received"),
        (ProducerSession, "take_output"),
    ],
)
def test_an_unexpected_error_of_a_reader_or_a_writer_fails_the_channels_of_its_connection(
    edge: Callable[..., Edge],
    monkeypatch: pytest.MonkeyPatch,
    session_type: type,
    method: str,
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit(numbers(0, 1))
    sink.flush_all()
    next_element(source)
    original = getattr(session_type, method)

    def planted(self: Any, *arguments: Any) -> Any:
        # Either side has both sessions, one of which has no channel.
        if self.channel_count if session_type is ConsumerSession else self.reader_count:
            raise RuntimeError("planted")
        return original(self, *arguments)

    monkeypatch.setattr(session_type, method, planted)
    # Each side has something to say.
    sink.emit(numbers(1, 1))
    sink.flush_all()
    source.channels[0].request_in_flight_rows(1)
    with pytest.raises(ConnectionLostError):
        drain(source)
    source.close()
    sink.close()
