"""Reports of subtasks that come to the driver over the network."""

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import system_random
from headrace.core.threads import EventLoopThread
from headrace.gateways.subtask_report import SubtaskReport
from headrace.rpc.tcp import TcpRpcService
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


async def open_receiver(taken: list[SubtaskReport]) -> tuple[TcpRpcService, ReportReceiver]:
    service = TcpRpcService(
        Settings(),
        bind_host="127.0.0.1",
        secret=SECRET,
        clock=SystemClock(),
        random=system_random(),
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
