"""The life of a session in this process, from its start to the signal or the client that ends it."""

from collections.abc import Callable
from pathlib import Path

from headrace.api.client.program_end import (
    Terminated,
    end_in_order_when_terminated,
    ignore_termination,
)
from headrace.core.config import Settings
from headrace.spark.session_cluster import SessionCluster


def serve_session(
    settings: Settings,
    name: str,
    log_folder: Path | None,
    on_ready: Callable[[SessionCluster], None],
) -> int:
    """Be a session until a client stops it, or SIGTERM or Ctrl-C comes; return the exit code, which is 0 then.

    Whatever else ends it is raised. In the main thread.
    """
    take_back = end_in_order_when_terminated()
    cluster = SessionCluster(settings, name, log_folder)
    try:
        cluster.start()
        on_ready(cluster)
        cluster.wait()
        return 0
    except (Terminated, KeyboardInterrupt):
        return 0
    finally:
        ignore_termination()
        try:
            _close(cluster)
        finally:
            take_back()


def _close(cluster: SessionCluster) -> None:
    """End the cluster; a second Ctrl-C during this does not leave it half ended."""
    while True:
        try:
            cluster.close()
            return
        except KeyboardInterrupt:
            continue
