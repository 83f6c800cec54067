"""The life of a session in this process, from its start to the signal or the client that ends it."""

from collections.abc import Callable
from pathlib import Path

from headrace.api.client.program_end import (
    Terminated,
    end_in_order_when_terminated,
    ignore_termination,
)
from headrace.cli.cluster.standby import StandbyFile
from headrace.cli.termination import to_its_end
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.config import Settings
from headrace.spark.session_cluster import SessionCluster


def serve_session(
    settings: Settings,
    name: str,
    log_folder: Path | None,
    on_ready: Callable[[SessionCluster], None],
    create: Callable[[Settings, str, Path | None], SessionCluster] = SessionCluster,
    on_standby: Callable[[LeaderRecord], None] | None = None,
) -> int:
    """Be a session until a client stops it, or SIGTERM or Ctrl-C comes; return the exit code, which is 0 then.

    `create` makes another kind of cluster, which may end by itself. `on_standby` hears of the leader while this process
    waits to lead. Whatever else ends it is raised. In the main thread.
    """
    take_back = end_in_order_when_terminated()
    cluster = create(settings, name, log_folder)
    file = StandbyFile(name)

    def stands_by(leader: LeaderRecord | None) -> None:
        file.show(leader)
        if leader is not None and on_standby is not None:
            on_standby(leader)

    try:
        cluster.start(stands_by)
        on_ready(cluster)
        cluster.wait()
        return 0
    except (Terminated, KeyboardInterrupt):
        return 0
    finally:
        ignore_termination()
        try:
            file.remove()
            to_its_end(cluster.close)
        finally:
            take_back()
