"""Options of several letters behind one dash, which Flink's parser takes: click reads each letter as an option.

`-parallelism 3` is then `-p arallelism`, or an option that there is not; the error names the word that was written.
"""

from collections.abc import Sequence
from typing import Final

import click

_ADVICE: Final = "options of several letters begin with two dashes"


def said_whole(error: click.UsageError, words: Sequence[str]) -> click.UsageError:
    """Return the error that names an option of several letters as it was written, if that is what was wrong."""
    if error.ctx is None:
        return error
    options = _options_of(error.ctx.command)
    # Of `--name` behind one dash, whatever click made of it.
    for word in _own_words(error.ctx, words, options):
        whole = f"-{word.partition('=')[0]}"
        if whole in options:
            return click.UsageError(
                f"'{word}' is read as letters, an option each: {_ADVICE}, as in '{whole}'",
                error.ctx,
            )
        read = _reading(error, word)
        if read:
            return click.UsageError(f"{read}; {_ADVICE}", error.ctx)
    return error


def _options_of(command: click.Command) -> dict[str, click.Option]:
    return {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
    }


def _own_words(
    ctx: click.Context, words: Sequence[str], options: dict[str, click.Option]
) -> list[str]:
    """Return the words with one dash that are no option, up to those of a program."""
    rest, found = list(words), list[str]()
    for name in ctx.command_path.split()[1:]:
        if rest[:1] == [name]:
            del rest[0]
    is_program_next = not ctx.command.context_settings.get("allow_interspersed_args", True)
    while rest:
        word = rest.pop(0)
        option = options.get(word)
        if option is not None:
            if not option.is_flag:
                del rest[:1]
        elif word == "--" or (is_program_next and not word.startswith("-")):
            break
        elif len(word) > 2 and word[0] == "-" and word[1:3].isalpha() and word[1] != "D":
            found.append(word)
    return found


def _reading(error: click.UsageError, word: str) -> str:
    """Return what is wrong with a word that has made this error, or nothing where it has not."""
    if isinstance(error, click.NoSuchOption) and error.option_name[1:] in word[1:]:
        return f"there is no option '{word}'"
    if (
        isinstance(error, click.BadParameter)
        and error.param is not None
        and word[:2] in error.param.opts
    ):
        return f"{error.format_message().rstrip('.')}: '{word}' is read as '{word[:2]} {word[2:]}'"
    return ""
