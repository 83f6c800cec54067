"""`headrace options`: lists the settings that `-D` and a program's Configuration take.

Settings on the command line (`KeyValue`) are checked before anything starts, so that a typo is an error.
"""

import contextlib
import importlib
import json
import pkgutil
import textwrap
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
    ConfigOption,
    Settings,
    check_settings,
    declared_options,
    default_text,
    type_text,
    unknown_settings,
)
from headrace.core.errors import ConfigurationError, HostError
from headrace.graph.pipeline_options import FREE_PREFIXES

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def refuse_unusable(settings: Mapping[str, str]) -> None:
    """Raise UsageError for a key that no option declares, naming the nearest, and for values that cannot be."""
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
    """Import every module, because an option is declared beside the code that reads it."""
    for module in pkgutil.walk_packages([str(_PACKAGE)], f"{_PACKAGE.name}."):
        # What an extra is missing for cannot be set up here either.
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


class KeyValue(click.ParamType[tuple[str, str]]):
    """`key=value`."""

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
    help="Name of a highly available cluster: high-availability.cluster-id.",
)


def namespace_settings(namespace: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that `-z` stands for.

    UsageError where `settings` have no high availability; ConfigurationError for what is no name.
    """
    if namespace is None:
        return {}
    named = {CLUSTER_ID.key: namespace}
    if not is_highly_available(Settings(settings)):
        raise click.UsageError(
            f"-z names a cluster of high availability, and {HIGH_AVAILABILITY_TYPE.key} is {NONE}: add "
            f"-D {HIGH_AVAILABILITY_TYPE.key}=... with the cluster's own settings, or name its address with -m",
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


_HELP: Final = """\
List the settings that -D takes.

Each is shown with its type, default and meaning. With WORDS, only those whose key or meaning contains every word.
Settings of Spark (spark.…) go to Spark and are not listed.

\b
Try it:
  headrace options                       all
  headrace options checkpointing         those about checkpointing
  headrace options restart delay         those with both words
  headrace options --json                for a program
"""
_WIDTH: Final = 100


@click.command(name="options", help=_HELP)
@json_option
@click.argument("words", nargs=-1)
def options(words: tuple[str, ...], is_json: bool) -> int:
    """List options; the help text is `_HELP`."""
    declare_all_options()
    found = [option for option in declared_options() if _has(option, words)]
    if not found:
        raise click.UsageError(
            f"no option has {' and '.join(repr(word) for word in words)} in its key or meaning; "
            "'headrace options' lists all"
        )
    if is_json:
        print_json([_facts(option) for option in found])
    else:
        click.echo("\n".join(_entry(option) for option in found))
    return 0


def _facts(option: ConfigOption[Any]) -> dict[str, Any]:
    return {
        "key": option.key,
        "type": type_text(option),
        "default": default_text(option.default),
        "doc": " ".join(option.doc.split()),
        "choices": list(option.choices),
    }


def _has(option: ConfigOption[Any], words: tuple[str, ...]) -> bool:
    text = " ".join((option.key, *option.deprecated_keys, option.doc)).lower()
    return all(word.lower() in text for word in words)


def _entry(option: ConfigOption[Any]) -> str:
    meaning = option.doc
    if option.choices:
        meaning += f" One of: {', '.join(option.choices)}."
    if option.unobeyed:
        meaning += f" Has no effect: {option.unobeyed}."
    if option.refused:
        meaning += f" Only the default is accepted: {option.refused}."
    facts = f"{option.key}  ({type_text(option)}, default: {default_text(option.default)})"
    lines = textwrap.wrap(" ".join(meaning.split()), _WIDTH, break_on_hyphens=False)
    return "\n".join([facts, *(f"    {line}" for line in lines)])
