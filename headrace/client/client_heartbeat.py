"""Heartbeats of a client for the jobs that end with it."""

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.api.executors import ATTACHED
from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.ids import JobId
from headrace.gateways.errors import JobAlreadyEndedError, UnknownJobError
from headrace.graph.job_graph import JobGraph

if TYPE_CHECKING:
    from headrace.gateways.dispatcher import DispatcherGateway

SHUTDOWN_ON_ATTACHED_EXIT: Final = ConfigOption(
    "execution.shutdown-on-attached-exit",
    bool,
    False,
    "Whether a job on a cluster in another process is cancelled when its attached client ends in any way: with the "
    "program, by Ctrl-C, or killed.",
)
HEARTBEAT_INTERVAL: Final = ConfigOption(
    "client.heartbeat.interval",
    timedelta,
    timedelta(seconds=30),
    "Time between two heartbeats of such a client.",
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "client.heartbeat.timeout",
    timedelta,
    timedelta(minutes=3),
    "Time without a heartbeat of such a client after which its job is cancelled.",
)
_LOG: Final = logging.getLogger(__name__)


def tied_to_client(graph: JobGraph, settings: Settings) -> JobGraph:
    """Return the job as one that ends with its client, if the settings say so. ConfigurationError."""
    if not (settings.get_option(SHUTDOWN_ON_ATTACHED_EXIT) and settings.get_option(ATTACHED)):
        return graph
    timeout_ms = int(settings.duration_ms(HEARTBEAT_TIMEOUT))
    if not 0 < settings.duration_ms(HEARTBEAT_INTERVAL) < timeout_ms:
        raise ConfigurationError(
            HEARTBEAT_INTERVAL.key,
            settings.get_option(HEARTBEAT_INTERVAL),
            f"it must be above 0 and below {HEARTBEAT_TIMEOUT.key}",
        )
    return msgspec.structs.replace(graph, client_heartbeat_timeout_ms=timeout_ms)


async def keep_alive(
    job_id: JobId,
    dispatcher: "DispatcherGateway",
    interval_ms: float,
    timeout_ms: int,
    clock: Clock,
) -> None:
    """Send heartbeats until the job has ended, or this coroutine is cancelled. Failed heartbeats are repeated."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            if (await dispatcher.request_job_status(job_id)).is_terminal_state():
                return
            await dispatcher.report_client_heartbeat(job_id, clock.now_ms() + timeout_ms)
        except (UnknownJobError, JobAlreadyEndedError):
            return
        except HeadraceError as error:
            _LOG.warning("the heartbeat of the client of job %s failed: %s", job_id, error)
