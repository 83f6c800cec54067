"""General options of many commands, the check of the settings that they give, and the JSON document.

Settings on the command line (`KeyValue`) are checked before anything starts, so that a typo is an error.
"""

import contextlib
import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from headrace.api.executors import runs_elsewhere
from headrace.cluster.high_availability.options import (
    CLUSTER_ID,
    HIGH_AVAILABILITY_TYPE,
    NONE,
    cluster_id,
    is_highly_available,
)
from headrace.core.config import (
    Settings,
    check_settings,
    unknown_settings,
)
from headrace.core.errors import ConfigurationError, HostError
from headrace.graph.pipeline_options import FREE_PREFIXES

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def refuse_unusable(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a key that no option declares, naming the nearest, and for an invalid value."""
    # Imported late: help texts do not need it. It declares the options of the host, without importing PySpark.
    from headrace.spark.master import refuse_unusable_host_settings

    if unknown_settings(settings, FREE_PREFIXES):
        declare_all_options()
    try:
        check_settings(settings, FREE_PREFIXES)
        if not runs_elsewhere(Settings(settings)):
            refuse_unusable_host_settings(settings)
    except (ConfigurationError, HostError) as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error


def declare_all_options() -> None:
    """Import every module, because options are declared next to the code that reads them."""
    for module in pkgutil.walk_packages([str(_PACKAGE)], f"{_PACKAGE.name}."):
        # What an extra is missing for cannot be set up here either.
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


class KeyValue(click.ParamType[tuple[str, str]]):
    """A setting of the form `key=value`."""

    name = "key=value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            self.fail(f"'{value}' is not of the form key=value", param, ctx)
        return key.strip(), text.strip()


namespace_option: Final = click.option(
    "-z",
    "--zookeeperNamespace",
    "namespace",
    metavar="NAME",
    help="Cluster id for high availability (sets high-availability.cluster-id).",
)


def namespace_settings(namespace: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that `-z` stands for.

    UsageError if `settings` have no high availability; ConfigurationError for an invalid name.
    """
    if namespace is None:
        return {}
    named = {CLUSTER_ID.key: namespace}
    if not is_highly_available(Settings(settings)):
        raise click.UsageError(
            f"-z needs high availability, but {HIGH_AVAILABILITY_TYPE.key} is {NONE}: add "
            f"-D {HIGH_AVAILABILITY_TYPE.key}=... with the other settings of the cluster, or give its address with -m",
            click.get_current_context(silent=True),
        )
    cluster_id(Settings(named))
    return named


json_option: Final = click.option(
    "--json",
    "is_json",
    is_flag=True,
    help="Print one JSON document; messages go to standard error.",
)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
