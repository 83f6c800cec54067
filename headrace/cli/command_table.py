"""CommandTable: a group of commands that are imported when they run, so that help and lists of commands are fast."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A command: `module:attribute`, and the sentence that lists of commands show."""

    place: str
    summary: str


class CommandTable(click.Group):
    """A group whose commands are in a table by name.

    `free_word`: the command that is meant if the first argument is not a name in the table, as `headrace savepoint
    <job>` stands for `headrace savepoint trigger <job>`; without arguments this command reports the missing one.
    """

    def __init__(
        self,
        *arguments: Any,
        table: Mapping[str, Entry],
        free_word: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._free_word = free_word

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._table, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._table[cmd_name].place.partition(":")
        return getattr(importlib.import_module(module), name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = self.list_commands(ctx)
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        is_free = not ctx.resilient_parsing if not args else args[0] not in (*names, *own)
        if self._free_word is not None and is_free:
            if (
                args
                and not args[0].startswith("-")
                and difflib.get_close_matches(args[0], names, n=1)
            ):
                raise self._no_such_action(ctx, args[0])
            args = [self._free_word, *args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.option_name} must come after the command, as in '{ctx.command_path} {names[0]} "
                f"{error.option_name} ...'",
                ctx,
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if ctx.resilient_parsing:
                return None, None, args[1:]
            raise self._no_such_action(ctx, name)
        return super().resolve_command(ctx, args)

    def _no_such_action(self, ctx: click.Context, name: str) -> click.UsageError:
        if name.endswith(".py"):
            return click.UsageError(
                f"'{name}' is not a command: run a program with 'headrace run {name}'", ctx
            )
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"the actions are {', '.join(names)}"
        return click.UsageError(f'"{name}" is not a valid action: {hint}', ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self._summary(ctx, name)) for name in self.list_commands(ctx)]
            )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=self._summary(ctx, name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        if not found and self._free_word is not None:
            command = self.get_command(ctx, self._free_word)
            words = (
                [one for one in command.params if isinstance(one, click.Argument)]
                if command
                else []
            )
            found = words[0].shell_complete(ctx, incomplete) if words else []
        # Options of the group; click's own group would import every command to look for its help.
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in self._table:
            return self._table[name].summary
        command = self.commands[name]
        return command.get_short_help_str(limit=120)
