"""TLS between the processes of a cluster: by option on one host, by itself where other hosts can connect."""

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from headrace.spark.workers.worker_process import routable_address
from tests.spark.pages import answer, cluster_of
from tests.spark.processes import children_of, listening_addresses_of, marked_processes, new_mark
from tests.spark.programs import COUNTING, Program, headrace_run, start_headrace
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

LOOPBACK = "127.0.0.1"
FRAMES = """
from headrace.common import Types
from headrace.datastream import StreamExecutionEnvironment
from headrace.spark.session import spark_session

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
keyed = (
    env.from_dataframe(spark_session().range(1000))
    .map(lambda row: (row["id"] % 3, 1), output_type=Types.TUPLE([Types.LONG(), Types.LONG()]))
    .key_by(lambda pair: pair[0])
)
with keyed.reduce(lambda left, right: (left[0], left[1] + right[1])).execute_and_collect() as rows:
    print("COUNTS", sorted(dict(sorted(rows)).items()))
"""


def own_addresses() -> list[str]:
    """The address of this host that others may reach, if it is on a network at all."""
    try:
        return [routable_address("198.51.100.1")]
    except OSError:
        return []


def tls_version(host: str, port: int) -> str | None:
    """What a port speaks with a client that has no certificate, before it hangs up on it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Shorter than what a stranger is given to prove itself: the certificate is what it lacks.
    with socket.create_connection((host, port), 5) as plain, context.wrap_socket(plain) as secured:
        version = secured.version()
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            assert secured.recv(1) == b""
    return version


def addresses_of_task_managers(mark: str) -> set[tuple[str, int]]:
    """Where Spark's Python workers with this mark listen: two TaskManagers have a port of each plane."""
    # The daemon that they are forked from listens too, for its JVM alone.
    python = [one for one in marked_processes(mark) if one.is_daemon_or_worker]
    workers = {child.pid for daemon in python for child in children_of(daemon.pid)}
    addresses = listening_addresses_of(workers)
    assert len(addresses) == 4, addresses
    return addresses


def test_the_option_turns_every_port_of_one_host_to_tls_over_which_rows_and_results_arrive(
    tmp_path: Path, started: list[Program]
) -> None:
    text = FRAMES + COUNTING
    program = headrace_run(tmp_path, text, "-D", "security.ssl.internal.enabled=true")
    started.append(program)
    program.wait_for_line("number 20")
    assert "COUNTS [(0, 334), (1, 333), (2, 333)]\n" in program.out, program.report()
    for host, port in addresses_of_task_managers(program.mark):
        assert (host, tls_version(host, port)) == (LOOPBACK, "TLSv1.3")
    program.interrupt()
    program.wait(60)
    program.assert_nothing_is_left()


@pytest.mark.parametrize("address", own_addresses()[:1])
def test_a_driver_that_other_hosts_reach_has_tls_and_listens_nowhere_else(
    tmp_path: Path, started: list[Program], address: str
) -> None:
    # Executors of a standalone cluster inherit the mark of its workers, not the program's.
    mark = new_mark()
    cluster = StandaloneCluster(tmp_path / "cluster", mark)
    try:
        (tmp_path / "program.py").write_text(COUNTING)
        program = start_headrace(
            tmp_path, "run", *cluster.options,
            "-D", f"spark.driver.host={address}", "-D", "spark.executor.memory=1g", "program.py",
            environment={"HEADRACE_HOME": str(tmp_path / "home")},
        )  # fmt: skip
        started.append(program)
        program.wait_for_line("number 20")
        for host, port in addresses_of_task_managers(mark):
            assert (host, tls_version(host, port)) == (address, "TLSv1.3")
        # Spark's page starts where no other host reaches it.
        jvms = {one.pid for one in marked_processes(program.mark) if one.is_jvm}
        before = listening_addresses_of(jvms)
        connection = cluster_of(tmp_path / "home").connection
        status, jobs = answer(f"{connection.address}/spark/jobs/", connection.token)
        assert status == 200 and "TaskManager " in jobs
        [(host, port)] = listening_addresses_of(jvms) - before
        assert host.removeprefix("::ffff:") == LOOPBACK
        assert answer(f"http://{LOOPBACK}:{port}/jobs/", "")[0] == 403
        program.interrupt()
        program.wait(60)
        program.assert_nothing_is_left()
    finally:
        cluster.end()
