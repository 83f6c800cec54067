"""Settings given on the command line are checked before anything starts: a typo must not be silent."""

import contextlib
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from headrace.core.config import check_settings, unknown_settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.graph.pipeline_options import FREE_PREFIXES

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def refuse_unusable(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a key that no option declares, naming the nearest, and for values that cannot be."""
    if unknown_settings(settings, FREE_PREFIXES):
        declare_all_options()
    # Imported late: the help texts do not need Spark.
    from headrace.spark.host_settings import refuse_unusable_host_settings

    try:
        check_settings(settings, FREE_PREFIXES)
        refuse_unusable_host_settings(settings)
    except (ConfigurationError, HostError) as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error


def declare_all_options() -> None:
    """Import every module, because an option is declared beside the code that reads it."""
    for module in pkgutil.walk_packages([str(_PACKAGE)], f"{_PACKAGE.name}."):
        # What an extra is missing for cannot be set up here either.
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
