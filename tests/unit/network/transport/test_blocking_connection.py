"""Connecting with a blocking socket, where the way that was tried first leads nowhere."""

import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.errors import ConnectionLostError
from headrace.network.transport import blocking_connection
from headrace.network.transport.blocking_connection import BlockingConnection
from headrace.network.transport.server import host_id


def test_a_unix_socket_to_which_nobody_answers_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []

    class NotedSocket(socket.socket):
        def __init__(self, *values: Any) -> None:
            super().__init__(*values)
            made.append(self)

    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as nobody_listens, socket.socket() as neither_here:
        nobody_listens.bind(str(path))
        neither_here.bind(("127.0.0.1", 0))
        port = neither_here.getsockname()[1]
        location = TaskManagerLocation(ResourceId("tm-1"), "127.0.0.1", port, str(path), host_id())
        monkeypatch.setattr(blocking_connection.socket, "socket", NotedSocket)
        with pytest.raises(ConnectionLostError):
            BlockingConnection(location, "raw", b"s" * 32, SeededRandom(1))
    assert made[0].family is socket.AF_UNIX
    assert [each.fileno() for each in made] == [-1] * len(made)
