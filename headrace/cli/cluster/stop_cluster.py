"""`headrace cluster stop`: ends a cluster over REST, and if that fails, its process by signals."""

import signal
from typing import Final

import click

from headrace.cli.cluster.standby import Standby, find_standby
from headrace.cli.daemon.local_process import (
    IMPATIENT,
    LocalProcess,
    Patience,
    StillRunningError,
    comes,
)
from headrace.cli.jobs.cluster_command import (
    CLUSTER_NAME,
    ClusterCommand,
    ClusterSession,
    choose_cluster,
)
from headrace.core.config import Settings
from headrace.rest.client import RestClient
from headrace.rest.client_errors import (
    ClusterEndedError,
    ClusterRestartingError,
    RestError,
    RestUnreachableError,
)
from headrace.rest.home.connections import ClusterConnection, has_ended
from headrace.rest.home.supervisions import Supervision, live_supervisions, supervision_of

_TIMEOUT_S: Final = 60.0
_LEAVE_S: Final = 5.0
"""Time for a supervisor to end by itself after its driver has ended in order."""
_LEAST_ASK_S: Final = 1.0
"""Least time for the cluster to answer the request to end, even if the user's time is shorter."""
_HELP: Final = """\
Stop a cluster: its jobs are cancelled, and their checkpoints and savepoints are kept.

The command waits until the process has ended. To continue the jobs of a session later, first stop each of them with a
savepoint: headrace stop JOB_ID.

\b
Try it:
  headrace cluster stop                       the only cluster of this machine
  headrace cluster stop nightly
  headrace cluster stop nightly --force       end its process if it does not end by itself
"""


@click.command("stop", cls=ClusterCommand, help=_HELP)
@click.option(
    "--force", is_flag=True, help="End the process by signals if it does not end by itself."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait for the cluster to answer and end.",
)
@click.argument("name", metavar="[NAME]", type=CLUSTER_NAME, required=False)
@click.pass_obj
def stop_cluster(session: ClusterSession, force: bool, timeout_s: float, name: str | None) -> int:
    """Stop a cluster; the help text is `_HELP`."""
    patience = Patience(timeout_s)
    standby = None if name is None else find_standby(name)
    if standby is not None:
        return _stop_standby(session, standby, patience, is_forced=force)
    try:
        choose_cluster(session, name)
        connection = session.found.connection
    except ClusterRestartingError as error:
        return _stop_restarting(session, error.supervision, patience, is_forced=force)
    process = LocalProcess.of(connection)
    supervision = supervision_of(connection.pid, connection.start_ticks)
    _ask(session, process, patience, is_forced=force and process is not None)
    if process is not None:
        process.await_end(connection, patience, is_forced=force, note=session.note)
    elif not comes(lambda: _is_unreachable(session, patience), patience.left_s):
        raise StillRunningError(connection, timeout_s, "look at it on its own machine")
    _await_supervisor(session, supervision, patience, is_forced=force)
    return _has_ended(session, connection.name, connection.address)


def _has_ended(session: ClusterSession, name: str, address: str) -> int:
    session.answer({"name": name, "address": address})
    session.say(f"Cluster {name or address} has ended.")
    return 0


def _stop_restarting(
    session: ClusterSession, supervision: Supervision, patience: Patience, *, is_forced: bool
) -> int:
    """End a cluster that currently has no driver to cancel its jobs."""
    _end_supervisor(session, supervision, patience, is_forced=is_forced)
    if supervision.keeps_jobs:
        session.note(
            "it had no driver to cancel its jobs: they continue from their last checkpoints when a driver with the "
            "same "
            "high-availability settings starts"
        )
    return _has_ended(session, supervision.name, "")


def _await_supervisor(
    session: ClusterSession, supervision: Supervision | None, patience: Patience, *, is_forced: bool
) -> None:
    """Wait until the supervisor of a driver that has ended in order has ended too; end it if it does not.

    If the driver died just before it was told to end, the supervisor is about to start the next one.
    """
    if supervision is not None and not comes(_process_of(supervision).is_gone, _LEAVE_S):
        least = Patience(max(_LEAVE_S, patience.left_s))
        _end_supervisor(session, supervision, least, is_forced=is_forced)


def _end_supervisor(
    session: ClusterSession, supervision: Supervision, patience: Patience, *, is_forced: bool
) -> None:
    """End a supervisor, which ends its driver, in order or by force. StillRunningError."""
    process = _process_of(supervision)
    place = ClusterConnection("", pid=supervision.pid, name=supervision.name)
    process.send(signal.SIGTERM)
    # It may have started a driver since.
    last = next((one for one in live_supervisions() if one.pid == supervision.pid), supervision)
    process.await_end(place, patience, is_forced=is_forced, note=session.note)
    if is_forced and last.driver_pid:
        # Where it was ended by force, it has left the driver that it was starting.
        LocalProcess(last.driver_pid, last.driver_start_ticks).send(signal.SIGKILL)


def _process_of(supervision: Supervision) -> LocalProcess:
    return LocalProcess(supervision.pid, supervision.start_ticks)


def _stop_standby(
    session: ClusterSession, standby: Standby, patience: Patience, *, is_forced: bool
) -> int:
    """End a standby by signals, because it serves no requests."""
    process = LocalProcess(standby.pid, standby.start_ticks)
    supervision = supervision_of(standby.pid, standby.start_ticks)
    place = ClusterConnection(standby.leader_address, pid=standby.pid, name=standby.name)
    process.send(signal.SIGTERM)
    process.await_end(place, patience, is_forced=is_forced, note=session.note)
    _await_supervisor(session, supervision, patience, is_forced=is_forced)
    session.answer({"name": standby.name, "address": ""})
    session.say(f"Standby {standby.name} has ended.")
    return 0


def _ask(
    session: ClusterSession, process: LocalProcess | None, patience: Patience, *, is_forced: bool
) -> None:
    """Ask the cluster to end. RestError if it does not answer, unless it will be ended by force."""
    try:
        if is_forced:
            client = _impatient_client(session, patience)
        else:
            client = session.client_for(max(_LEAST_ASK_S, patience.left_s))
        client.delete("/cluster")
    except ClusterEndedError:
        return
    except RestUnreachableError as error:
        if is_forced or has_ended(session.found):
            session.note(str(error))
        elif process is not None and not patience.left_s:
            raise StillRunningError(
                session.found.connection,
                patience.timeout_s,
                f"end it with --force ({error})",
            ) from error
        else:
            raise


def _impatient_client(session: ClusterSession, patience: Patience) -> RestClient:
    return RestClient.of(
        session.found,
        settings=Settings({**IMPATIENT, **session.definitions}),
        patience_s=max(_LEAST_ASK_S, patience.left_s),
    )


def _is_unreachable(session: ClusterSession, patience: Patience) -> bool:
    try:
        _impatient_client(session, patience).get("/config")
    except RestUnreachableError:
        return True
    except RestError:
        return False
    return False
