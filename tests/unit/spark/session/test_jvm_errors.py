"""The JVM's standard error: passed on without Java's warning of a module, and asked for the cause of a failed start."""

import logging
import socket
import subprocess
import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import accumulators

from headrace.spark.session.jvm import silence_accumulators, silence_py4j
from testkit.waiting import wait_until

SCRIPT = """
import subprocess, sys
from headrace.spark.session.jvm import JvmErrors
with JvmErrors() as errors:
    started = subprocess.Popen(
        ["sh", "-c", "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2; echo one >&2; read line; "
         "echo 'Exception in thread \\"main\\" a.B: no such thing' >&2; echo '  at x' >&2"], stdin=subprocess.PIPE
    )
# In one write: where Python does not buffer, `print` writes the end of the line apart, and other lines get between.
sys.stderr.write("ours\\n")
started.communicate(b"go")
print(errors.cause())
"""


def test_lines_pass_but_for_the_warning_also_after_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=30
    )
    assert sorted(done.stderr.splitlines()) == [
        "  at x",
        'Exception in thread "main" a.B: no such thing',
        "one",
        "ours",
    ]
    assert done.stdout.strip() == "a.B: no such thing"


def test_py4j_s_tracebacks_are_logged_for_those_who_ask_and_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = logging.getLogger()
    before = list(root.filters)
    silence_py4j()
    silence_py4j()
    try:
        assert len(root.filters) == len(before) + 1
        with caplog.at_level(logging.DEBUG, "headrace.spark.session.jvm"):
            for path in ("/x/site-packages/py4j/java_gateway.py", "/x/program.py"):
                root.handle(root.makeRecord("root", logging.ERROR, path, 1, "Exception", (), None))
        assert [(one.name, one.levelname) for one in caplog.records] == [
            ("headrace.spark.session.jvm", "DEBUG"),
            ("root", "ERROR"),
        ]
    finally:
        root.filters[:] = before


@pytest.mark.parametrize(("chosen", "is_told"), [(logging.NOTSET, False), (logging.INFO, True)])
def test_py4j_tells_of_its_connections_only_where_the_user_has_chosen_its_level(
    chosen: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = logging.getLogger("py4j")
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    before, filters = own.level, list(logging.getLogger().filters)
    own.setLevel(chosen)
    try:
        silence_py4j()
        assert logging.getLogger("py4j.clientserver").isEnabledFor(logging.INFO) is is_told
    finally:
        own.setLevel(before)
        logging.getLogger().filters[:] = filters


@pytest.fixture
def update_server() -> Generator[Any]:
    start: Any = getattr(accumulators, "_start_update_server")  # noqa: B009
    server = start("token", False)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("sent", "is_told"), [(b"token\0\0\0\0", False), (b"wrong", True)])
def test_the_end_of_the_connection_for_accumulators_is_no_traceback_and_other_errors_are(
    sent: bytes,
    is_told: bool,
    update_server: Any,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    context: Any = SimpleNamespace(_accumulatorServer=update_server)
    silence_accumulators(context)
    printed = ""

    def is_handled() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return "Traceback" in printed or bool(caplog.records)

    with caplog.at_level(logging.DEBUG, "headrace.spark.session.jvm"):
        with socket.create_connection(update_server.server_address, timeout=30) as connection:
            connection.sendall(sent)
            if not is_told:
                assert connection.recv(1) == b"\1"
        wait_until(is_handled, 30, "the end of the connection")
    assert ("Traceback" in printed) is is_told
    assert bool(caplog.records) is not is_told
