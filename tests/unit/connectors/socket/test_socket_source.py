"""Lines from a socket: cut, bounded, read again after a break, and at most once."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.connectors.socket import source as socket_lines
from headrace.connectors.socket.source import SocketLines, SocketReader, SocketSource
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.functions.source import Boundedness, InputStatus
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows

PATIENCE_S = 20.0


class Server:
    """Hands one end of a pair to whoever connects, and keeps the other."""

    def __init__(self, *contents: bytes | OSError) -> None:
        self.contents: Iterator[bytes | OSError] = iter(contents)

    def connect(self) -> socket.socket:
        content = next(self.contents)
        if isinstance(content, OSError):
            raise content
        ours, theirs = socket.socketpair()
        with ours:
            ours.sendall(content)
        return theirs


class Taken:
    """Takes lines as they come, until there are no more."""

    def __init__(
        self, connect: Callable[[], socket.socket], *, delimiter: str = "\n", max_retry: int = 0
    ) -> None:
        self.news = threading.Event()
        self.source = SocketLines(connect, delimiter, max_retry, self.news.set, retry_pause_s=0)
        self.source.start()

    def all(self, count: int = 100) -> list[str]:
        found: list[str] = []
        while True:
            self.news.clear()
            lines = self.source.take(count)
            found += lines
            if not lines:
                if self.source.has_ended:
                    return found
                assert self.news.wait(PATIENCE_S)


def test_what_comes_is_cut_into_lines_and_the_last_needs_no_end() -> None:
    server = Server("one\r\nzwölf\n\nlast".encode())
    assert Taken(server.connect).all() == ["one", "zwölf", "", "last"]


def test_another_delimiter_keeps_carriage_returns() -> None:
    assert Taken(Server(b"a\r;;b\n;;").connect, delimiter=";;").all() == ["a\r", "b\n"]


def test_bytes_that_are_no_text_do_not_end_the_stream() -> None:
    assert Taken(Server(b"\xff\nok\n").connect).all() == ["\ufffd", "ok"]


def test_a_line_may_come_in_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lines, "_CHUNK_SIZE_BYTES", 3)
    expected = [f"line number {number} ü" for number in range(50)]
    assert Taken(Server("\n".join(expected).encode()).connect).all() == expected


def test_no_more_lines_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lines, "WAITING_LINES_MAX", 2)
    taken = Taken(Server(b"1\n2\n3\n4\n5\n6\n7\n").connect)
    found: list[str] = []
    while len(found) < 7:
        taken.news.clear()
        lines = taken.source.take(100)
        assert len(lines) <= 2
        found += lines
        if not lines:
            assert taken.news.wait(PATIENCE_S)
    assert found == list("1234567")


def test_a_lost_connection_is_made_again_and_the_cut_line_is_dropped() -> None:
    server = Server(b"one\ncut off", OSError("refused"), b"two\nend")
    assert Taken(server.connect, max_retry=2).all() == ["one", "two", "end"]


def test_a_server_that_cannot_be_reached_any_more_is_an_error_after_its_lines() -> None:
    taken = Taken(Server(b"one\n", OSError("refused")).connect, max_retry=1)
    found: list[str] = []
    with pytest.raises(OSError, match="refused"):
        while True:
            taken.news.clear()
            lines = taken.source.take(100)
            found += lines
            if not lines:
                assert taken.news.wait(PATIENCE_S)
    assert found == ["one"]


def test_closing_wakes_the_thread_that_reads() -> None:
    ours, theirs = socket.socketpair()
    taken = Taken(lambda: theirs)
    with ours:
        ours.sendall(b"one\n")
        assert taken.news.wait(PATIENCE_S)
        assert taken.source.take(10) == ["one"]
        taken.news.clear()
        taken.source.close()
        assert taken.news.wait(PATIENCE_S)
    assert taken.source.has_ended


class WakingContext(ConnectorContext):
    def __init__(self, **settings: str) -> None:
        super().__init__(Types.STRING())
        self.settings = Settings(settings)
        self.news = threading.Event()

    def wake(self) -> None:
        self.news.set()


def test_a_reader_emits_lines_until_the_server_closes() -> None:
    context, output = WakingContext(), Rows()
    lines = SocketLines(Server(b"one\ntwo\n").connect, "\n", 0, context.wake)
    reader = SocketReader(lines, context)
    reader.start()
    status = InputStatus.MORE_AVAILABLE
    while status is not InputStatus.END_OF_INPUT:
        context.news.clear()
        status = reader.poll_next(output)
        if status is InputStatus.NOTHING_AVAILABLE:
            assert context.news.wait(PATIENCE_S)
    assert output.values == ["one", "two"]
    reader.close()


def test_a_socket_has_no_position_and_says_so_where_checkpoints_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = WakingContext(**{"execution.checkpointing.interval": "1 s"})
    reader = SocketReader(SocketLines(Server(b"").connect, "\n", 0, context.wake), context)
    reader.restore_splits([])
    with caplog.at_level(logging.WARNING):
        reader.start()
    assert "rows are lost when the job restarts" in caplog.text
    assert reader.snapshot_state(1) == ()
    reader.close()


def test_only_the_first_subtask_connects() -> None:
    source = SocketSource("localhost", 9)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    other: Any = ConnectorContext(Types.STRING(), subtask_index=1, parallelism=2)
    reader = source.create_reader(other)
    reader.start()
    assert reader.poll_next(Rows()) is InputStatus.END_OF_INPUT


def test_a_socket_source_checks_its_address() -> None:
    with pytest.raises(ValueError, match="'port' must be between 1 and 65535"):
        SocketSource("localhost", 0)
    with pytest.raises(ValueError, match="'delimiter' cannot be empty"):
        SocketSource("localhost", 1, "")
