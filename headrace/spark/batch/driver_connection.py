"""DriverConnection: a Python worker's connection to the driver, for reports of the subtasks that run in it."""

import contextlib
from dataclasses import dataclass
from typing import Final

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.randomness import system_random
from headrace.core.threads import EventLoopThread
from headrace.gateways.subtask_report import SubtaskReport, SubtaskReportGateway
from headrace.rpc.tcp import TcpRpcService
from headrace.spark.session.authentication import TaskSecrets, find_secrets


class DriverConnection:
    """Connection to the driver, opened at the first report; one per process, for all its tasks."""

    def __init__(self, secrets: TaskSecrets) -> None:
        self._thread = EventLoopThread("headrace-reports")
        self._rpc_service = self._thread.run(_start(secrets))

    def tell(self, address: str, job_id: JobId, report: SubtaskReport) -> None:
        """Send a report to a ReportReceiver without waiting; it is lost if the driver cannot be reached."""
        with contextlib.suppress(HeadraceError):
            gateway = self._rpc_service.gateway(address, SubtaskReportGateway)
            gateway.report_subtask(job_id, report)

    def close(self) -> None:
        """Close the connection and end its thread."""
        self._thread.run(self._rpc_service.stop())
        self._thread.stop()


@dataclass
class _Kept:
    secrets: TaskSecrets
    connection: DriverConnection


# None or one. Spark gives a worker tasks of all clusters of an application, whose secrets differ.
_KEPT: Final[list[_Kept]] = []


def driver_connection() -> DriverConnection | None:
    """Return this process's connection to the task's driver; None if the task was given no secrets."""
    secrets = find_secrets()
    if secrets is None:
        return None
    for one in _KEPT:
        if (one.secrets.secret, one.secrets.tls) == (secrets.secret, secrets.tls):
            return one.connection
        one.connection.close()
    _KEPT[:] = [_Kept(secrets, DriverConnection(secrets))]
    return _KEPT[0].connection


async def _start(secrets: TaskSecrets) -> TcpRpcService:
    service = TcpRpcService(
        Settings(),
        # Nobody calls this process.
        bind_host="127.0.0.1",
        secret=secrets.secret,
        clock=SystemClock(),
        random=system_random(),
        tls=secrets.tls,
    )
    await service.start()
    return service
