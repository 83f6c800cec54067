"""A mistake of ours in the network thread: the channels of its connection fail, or else its TaskManager ends."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.config import Settings
from headrace.network.errors import ConnectionLostError
from headrace.network.sessions.consumer_session import ConsumerSession
from headrace.network.sessions.producer_session import ProducerSession
from headrace.network.transport.socket_transport import SocketTransport
from tests.integration.network.conftest import Edge, Starter
from tests.unit.network.exchange import drain, gate, next_element, numbers, writer

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("edge", ["unix", "tcp", "tls"], indirect=True)
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


@pytest.mark.parametrize("kind", ["callback", "timer"])
def test_what_belongs_to_no_connection_is_fatal_unless_the_transport_is_being_closed(
    start: Starter, kind: str
) -> None:
    heard: list[str] = []
    hears = threading.Event()

    def on_fatal_error(error: BaseException) -> None:
        heard.append(str(error))
        hears.set()

    def fail() -> None:
        raise LookupError("planted")

    def fail_later() -> None:
        transport.call_later(1, fail)

    transport = SocketTransport(
        Settings(), "127.0.0.1", "127.0.0.1", None, on_fatal_error=on_fatal_error
    )
    start("a", transport=transport).start()
    transport.post(fail if kind == "callback" else fail_later)
    assert hears.wait(20)
    transport._is_closed = True
    done = threading.Event()
    transport.post(fail)
    transport.post(done.set)
    assert done.wait(20)
    transport._is_closed = False
    assert heard == ["planted"]
