"""`headrace options`: lists the settings that `-D` and a program's Configuration accept."""

import textwrap
from typing import Any, Final

import click

from headrace.cli.general_options import declare_all_options, json_option, print_json
from headrace.core.config import (
    ConfigOption,
    declared_options,
    default_text,
    type_text,
)

_HELP: Final = """\
List the settings that -D accepts.

Each setting is shown with its type, default and meaning. With WORDS, only those whose key or meaning contains every
word. Settings of Spark (spark.…) go to Spark and are not listed.

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
