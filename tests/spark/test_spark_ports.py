"""Spark's own ports: what a stranger on this host, who has no secret, gets from them."""

import base64
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from headrace.core.clock import SystemClock
from headrace.core.randomness import secret_token
from headrace.core.security.tls import generate_identity
from tests.spark.conftest import SharedSession
from tests.spark.processes import listening_ports_of
from tests.spark.programs import COUNTING, Program, headrace_run
from tests.spark.stranger import Stranger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BLOCKS = 6
"""Numbers of broadcasts that are asked for: the closure of the first job is among them."""


def blocks_for_strangers(ports: Iterable[int]) -> list[bytes]:
    """What the ports give away of the first broadcasts."""
    names = [f"broadcast_{number}_piece0" for number in range(BLOCKS)]
    asked = [Stranger(port).block(name) for port in sorted(ports) for name in names]
    return [block for block in asked if block is not None]


def ports_of_spark(program: Program) -> set[int]:
    return listening_ports_of({one.pid for one in program.jvms()})


def test_blocks_and_files_of_a_local_session_are_not_for_strangers(
    shared_session: SharedSession, tmp_path: Path
) -> None:
    # A new one, whose first broadcasts are there to be asked for.
    shared_session.end()
    session = shared_session.start()
    (tmp_path / "shipped.txt").write_text("for executors alone")
    session.context.addFile(str(tmp_path / "shipped.txt"))
    assert session.context.parallelize([1], 1).map(lambda n: n + 1).collect() == [2]
    gateway: Any = getattr(SparkContext, "_gateway")  # noqa: B009
    ports = listening_ports_of({gateway.proc.pid})
    assert len(ports) >= 3
    assert blocks_for_strangers(ports) == []
    assert [Stranger(port).file("shipped.txt") for port in sorted(ports)] == [None] * len(ports)


def test_driver_and_executors_of_a_cluster_give_strangers_nothing(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, COUNTING, "--master", "local-cluster[1,3,1024]")
    started.append(program)
    program.wait_for_line("number 20")
    assert blocks_for_strangers(ports_of_spark(program)) == []
    (executor,) = program.executors()
    variables = Path(f"/proc/{executor.pid}/environ").read_bytes().split(b"\0")
    (secret,) = [one[19:] for one in variables if one.startswith(b"_SPARK_AUTH_SECRET=")]
    assert len(secret) == 64
    assert not any(secret.decode() in one.command for one in program.processes())
    for task_manager in program.task_managers():
        assert os.stat(f"/proc/{task_manager.pid}/environ").st_mode & 0o077 == 0
    program.interrupt()
    program.wait(60)
    program.assert_nothing_is_left()


def test_closures_and_logs_hold_neither_the_secret_nor_the_key_even_where_ports_are_open(
    tmp_path: Path, started: list[Program]
) -> None:
    identity, secret = generate_identity(SystemClock().now_ms()), secret_token()
    (tmp_path / "secret").write_text(secret.hex())
    (tmp_path / "identity").write_bytes(identity.certificate + identity.private_key)
    for name in ("secret", "identity"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "events").mkdir()
    program = headrace_run(
        tmp_path, COUNTING,
        "-D", f"headrace.security.secret-file={tmp_path / 'secret'}",
        "-D", f"headrace.security.identity-file={tmp_path / 'identity'}",
        "-D", "security.ssl.internal.enabled=true",
        "-D", "spark.authenticate=false",
        "-D", "headrace.spark.allow-unauthenticated=true",
        "-D", "spark.broadcast.compress=false",
        "-D", "spark.eventLog.enabled=true",
        "-D", f"spark.eventLog.dir={tmp_path / 'events'}",
        "-D", "spark.eventLog.compress=false",
    )  # fmt: skip
    started.append(program)
    program.wait_for_line("number 20")
    blocks = blocks_for_strangers(ports_of_spark(program))
    # The stranger knows how to ask.
    assert any(b"headrace" in block for block in blocks)
    key = identity.private_key.splitlines()[1]
    forms = (secret, secret.hex().encode(), base64.b64encode(secret), key)
    assert not [form for form in forms for block in blocks if form in block]
    events = b"".join(
        one.read_bytes() for one in (tmp_path / "events").rglob("*events*") if one.is_file()
    )
    assert b"spark.headrace.secret" in events
    assert not [form for form in forms if form in events]
    assert "every user of this host can run code as you" in "".join(program.err), program.report()
    program.interrupt()
    program.wait(60)
    program.assert_nothing_is_left()
