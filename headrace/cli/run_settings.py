"""Settings for which options of `headrace run` and `info` stand."""

from collections.abc import Mapping, Sequence

import click

from headrace.api.executors import (
    ATTACHED,
    REMOTE,
    SESSION,
    TARGET,
    executor_name,
    runs_elsewhere,
)
from headrace.checkpoint.options import (
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
)
from headrace.cli.general_options import namespace_settings
from headrace.cli.program_options import python_settings
from headrace.core.config import Settings
from headrace.graph.pipeline_options import PARALLELISM
from headrace.rest.connections import find_session
from headrace.rest.options import REST_ADDRESS, SESSION_NAME
from headrace.spark.options import MASTER


def program_settings(
    definitions: Sequence[tuple[str, str]],
    *,
    parallelism: int | None,
    target: str | None,
    address: str | None,
    namespace: str | None,
    of_python: Mapping[str, str | None],
    master: str | None = None,
    cluster_name: str | None = None,
    is_detached: bool = False,
    finds_session: bool = True,
) -> dict[str, str]:
    """Return the settings that the options of a program stand for; an option wins over a `-D` of the same meaning.

    `finds_session`: False where nothing is going to be asked of a session. UsageError where they do not fit each other;
    NoSuchClusterError; SeveralClustersError; ClusterRestartingError; ConfigurationError.
    """
    settings = dict(definitions)
    if master is not None:
        settings[MASTER.key] = master
    if parallelism is not None:
        settings[PARALLELISM.key] = str(parallelism)
    settings |= namespace_settings(namespace, settings)
    settings |= _target_settings(
        target or settings.get(TARGET.key),
        cluster_name,
        address,
        is_detached=is_detached,
        finds_session=finds_session,
        given_name=settings.get(SESSION_NAME.key),
    )
    return settings | python_settings(of_python)


def _target_settings(
    target: str | None,
    cluster_name: str | None,
    address: str | None,
    *,
    is_detached: bool,
    finds_session: bool,
    given_name: str | None,
) -> dict[str, str]:
    """Return those of the target, once a session was found. `given_name`: the session that a setting names."""
    if target is None and (address is not None or cluster_name is not None):
        target = SESSION if address is None else REMOTE
    for option, value, needed in (("-m", address, REMOTE), ("--cluster", cluster_name, SESSION)):
        if value is not None and target != needed:
            raise click.UsageError(
                f"{option} is for --target {needed}, and the target is {target}",
                click.get_current_context(silent=True),
            )
    settings: dict[str, str] = {}
    if target is not None:
        settings[TARGET.key] = executor_name(Settings({TARGET.key: target}))
    if address is not None:
        settings[REST_ADDRESS.key] = address
    if target == SESSION and finds_session:
        found = find_session(
            cluster_name or given_name or None, lambda text: click.echo(text, err=True)
        )
        settings |= {TARGET.key: SESSION, SESSION_NAME.key: found.connection.name}
    if is_detached and runs_elsewhere(Settings(settings)):
        settings[ATTACHED.key] = "false"
    return settings


def recovery_settings(
    from_savepoint: str | None, allows_non_restored_state: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings that the options of recovery stand for. A path is meant from here, not from the program."""
    settings: dict[str, str] = {}
    if from_savepoint is not None:
        # Imported late: it brings Arrow.
        from headrace.checkpoint.storage.file_systems import absolute_uri

        settings[RECOVERY_PATH.key] = absolute_uri(from_savepoint)
    if allows_non_restored_state:
        settings[IGNORE_UNCLAIMED_STATE.key] = "true"
    if claim_mode is not None:
        settings[RECOVERY_CLAIM_MODE.key] = claim_mode.upper().replace("-", "_")
    return settings
