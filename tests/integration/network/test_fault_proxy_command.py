"""`python -m headrace.testing.fault_proxy`: what it teaches, what it refuses, what it prints while it runs."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.network.wire.frames import Cancel
from headrace.network.wire.framing import encode
from headrace.testing.fault_proxy.__main__ import main
from headrace.testing.fault_proxy.proxy import Address, FaultProxy
from headrace.testing.fault_proxy.rules import ACTIONS

pytestmark = pytest.mark.integration


def test_help_teaches_every_action_with_examples() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for word, action in ACTIONS.items():
        assert f"\n    {word}" in text and str(action.__doc__) in text
    assert "--rule 'delay AddCredit by=100ms'" in text and "ResumeConsumption" in text


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--rule", "lose Data"], "'lose Data' is not a fault rule"),
        (["--listen", "nowhere"], "'nowhere' is neither host:port nor unix:path"),
        (["--seed", "x"], "not a valid integer"),
    ],
)
def test_wrong_usage_is_named(options: list[str], what: str) -> None:
    wanted = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", *options]
    result = CliRunner().invoke(main, wanted)
    assert result.exit_code == 2 and what in result.output


def test_a_proxy_that_would_dial_itself_is_refused() -> None:
    arguments = ["--listen", "localhost:7001", "--to", "127.0.0.1:7001"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "it would dial itself endlessly" in result.output


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1"])
def test_a_proxy_that_would_lead_other_machines_anywhere_is_refused(host: str) -> None:
    result = CliRunner().invoke(main, ["--listen", f"{host}:7001"])
    assert result.exit_code == 2 and "could connect to any address" in result.output


def test_a_socket_at_which_somebody_answers_is_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "live.sock"
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(place))
        live.listen()
        arguments = ["--listen", f"unix:{place}", "--to", "127.0.0.1:1"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1 and "a listener answers there" in result.output
        with socket.socket(socket.AF_UNIX) as dialler:
            dialler.connect(str(place))
            live.accept()[0].close()


def test_a_proxy_s_own_socket_goes_with_it_and_another_s_stays(tmp_path: Path) -> None:
    place = tmp_path / "own.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))

    async def listen_and_close(replace: bool) -> None:
        proxy = FaultProxy(Address("127.0.0.1", 1), ())
        await proxy.listen(Address(path=str(place)))
        if replace:
            place.rename(tmp_path / "moved.sock")
            place.write_text("another's")
        await proxy.close()

    asyncio.run(listen_and_close(replace=False))
    assert not place.exists()
    asyncio.run(listen_and_close(replace=True))
    assert place.read_text() == "another's"


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["--listen", where, "--to", "127.0.0.1:1"])
    assert result.exit_code == 1 and f"cannot listen on {where}" in result.output


def test_it_passes_frames_names_its_faults_and_ends_on_interrupt() -> None:
    frames = [b"".join(bytes(part) for part in encode(Cancel(channel))) for channel in range(3)]
    with socket.create_server(("127.0.0.1", 0)) as target:
        target.settimeout(30)
        command = [sys.executable, "-m", "headrace.testing.fault_proxy", "-v"]
        command += ["--listen", "127.0.0.1:0", "--to", f"127.0.0.1:{target.getsockname()[1]}"]
        command += ["--rule", "drop Cancel channel=1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening on 127.0.0.1:") and first.endswith("seed 0\n")
            assert process.stdout.readline() == "  drop Cancel channel=1\n"
            port = int(first.split(",")[0].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as dialler:
                accepted = target.accept()[0]
                accepted.settimeout(30)
                dialler.sendall(b"".join(frames))
                received = b""
                while len(received) < len(frames[0] + frames[2]):
                    received += accepted.recv(4096)
                assert received == frames[0] + frames[2]
                assert process.stdout.readline() == "connection 0 forward: drop Cancel channel=1\n"
                accepted.close()
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(30) == 0
