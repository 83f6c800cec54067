"""Reports of subtasks that come to the driver over the network."""

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import system_random
from headrace.core.security.tls import TlsIdentity, generate_identity
from headrace.core.threads import EventLoopThread
from headrace.gateways.subtask_report import SubtaskReport
from headrace.rpc.tcp import TcpRpcService
from headrace.spark.batch import driver_connection as connections
from headrace.spark.batch.driver_connection import DriverConnection
from headrace.spark.batch.subtask_reports import ReportReceiver
from headrace.spark.session.authentication import TaskSecrets
from testkit.waiting import wait_until

SECRET = b"s" * 32
JOB, ENDED_JOB = JobId(b"j" * 16), JobId(b"e" * 16)
REPORTS = [
    SubtaskReport("aa", 1, 0, state, "host", 5, 9, records_in=3)
    for state in (ExecutionState.RUNNING, ExecutionState.FAILED)
]


async def open_receiver(
    taken: list[SubtaskReport], secret: bytes = SECRET, tls: TlsIdentity | None = None
) -> tuple[TcpRpcService, ReportReceiver]:
    service = TcpRpcService(
        Settings(),
        bind_host="127.0.0.1",
        secret=secret,
        clock=SystemClock(),
        random=system_random(),
        tls=tls,
    )
    await service.start()
    receiver = ReportReceiver(service)
    receiver.follow(JOB, taken.append)
    receiver.start()
    return service, receiver


def test_reports_of_a_job_come_in_order_and_those_of_ended_jobs_are_passed_over() -> None:
    driver, taken = EventLoopThread("driver"), list[SubtaskReport]()
    service, receiver = driver.run(open_receiver(taken))
    worker = DriverConnection(TaskSecrets(SECRET, None))
    try:
        for report in REPORTS:
            worker.tell(receiver.address, ENDED_JOB, report)
            worker.tell(receiver.address, JOB, report)
        wait_until(lambda: len(taken) == 2, 30, "both reports")
        assert taken == REPORTS
    finally:
        worker.close()
        driver.run(service.stop())
        driver.stop()


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_a_worker_that_is_reused_by_another_cluster_reports_to_that_one(
    monkeypatch: pytest.MonkeyPatch, has_tls: bool
) -> None:
    driver = EventLoopThread("driver")
    last: DriverConnection | None = None
    try:
        for secret in (b"1" * 32, b"2" * 32):
            tls = generate_identity(SystemClock().now_ms()) if has_tls else None
            taken = list[SubtaskReport]()
            service, receiver = driver.run(open_receiver(taken, secret, tls))
            given = TaskSecrets(secret, tls)
            monkeypatch.setattr(connections, "find_secrets", lambda given=given: given)
            before, last = last, connections.driver_connection()
            assert last is not None and last is not before
            assert connections.driver_connection() is last
            last.tell(receiver.address, JOB, REPORTS[0])
            wait_until(lambda taken=taken: taken == REPORTS[:1], 30, "the report")
            driver.run(service.stop())
    finally:
        if last is not None:
            last.close()
        connections._KEPT.clear()
        driver.stop()
