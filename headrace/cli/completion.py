"""`headrace completion`: prints the script with which a shell completes command lines, including job ids."""

from typing import Final

import click
from click.shell_completion import get_completion_class

_HELP: Final = """\
Print the script with which bash, zsh or fish completes the commands of Headrace, their options, and ids of jobs.

\b
Try it, for this shell alone:
  source <(headrace completion bash)
  source <(headrace completion zsh)
  headrace completion fish | source
\b
Or for every new one:
  headrace completion bash > ~/.local/share/bash-completion/completions/headrace
  headrace completion zsh > "${fpath[1]}/_headrace"
  headrace completion fish > ~/.config/fish/completions/headrace.fish
"""
PROGRAM: Final = "headrace"
VARIABLE: Final = "_HEADRACE_COMPLETE"
"""Environment variable by which the script asks the command line for completions."""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the script; the help text is `_HELP`."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    root = click.get_current_context().find_root().command
    source = shell_class(root, {}, PROGRAM, VARIABLE)
    # Not `source()`, which runs the shell to ask for its version.
    click.echo(source.source_template % source.source_vars())
    return 0
