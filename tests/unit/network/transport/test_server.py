"""The user at the other end of a Unix socket."""

import errno
import os
import socket
from typing import Any

import pytest

from headrace.network.transport.server import host_id, is_of_own_user


def test_a_process_of_this_user_at_the_other_end_of_a_unix_socket_is_known() -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        assert is_of_own_user(near)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the kernel tells on Linux only")
def test_a_process_of_another_user_is_known_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        assert not is_of_own_user(near)


def test_on_tcp_the_kernel_tells_nothing() -> None:
    with socket.socket(socket.AF_INET) as one:
        assert is_of_own_user(one)


def test_a_process_that_may_not_see_its_network_namespace_goes_by_its_host_and_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path) == "/proc/self/ns/net":
            raise PermissionError(errno.EACCES, "not for you")
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse)
        found = host_id()
    assert found == f"{socket.gethostname()}:{os.getuid()}"
