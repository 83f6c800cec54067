"""`headrace`: the command line. Each command is a file of this folder, imported only when it runs."""

import importlib
import sys
from collections.abc import Sequence
from typing import Final

import click

from headrace import __version__
from headrace.cli.logs import EXIT_INTERRUPTED, report_failure, report_usage

COMMANDS: Final = {
    "checkpoint": "headrace.cli.checkpoint:checkpoint",
    "options": "headrace.cli.options:options",
    "run": "headrace.cli.run:run",
    "savepoint": "headrace.cli.checkpoint:savepoint",
    "shuffle-service": "headrace.cli.shuffle_service:shuffle_service",
    "trace": "headrace.cli.trace:trace",
    "warm-up": "headrace.cli.warm_up:warm_up",
}

_HELP: Final = """\
Flink's streaming runtime in Python, hosted on Spark.

A job is a Python program that builds streams and calls env.execute(). Headrace runs it inside a Spark application:
its own on this machine, or one on your cluster.

\b
Try it:
  headrace run wordcount.py                          on this machine, one slot per processor
  headrace run wordcount.py --input words.txt        with arguments for the program
  headrace run -p 4 wordcount.py                     four slots
  headrace run --master spark://host:7077 job.py     on a Spark cluster
  headrace run -D parallelism.default=2 \\
               -D spark.executor.memory=4g job.py    with settings of Headrace and of Spark
  headrace options checkpointing                     search the settings
  headrace run --python-files lib,rules.py job.py    with modules that the workers need
  headrace run -s /data/savepoint-1a2b3c-... job.py  from a savepoint, or a checkpoint
  headrace checkpoint list /data/checkpoints         the checkpoints in a folder
  headrace trace exchange                            credits and frames between two tasks, step by step
  headrace warm-up                                   once: makes later starts of Spark faster

Ctrl-C cancels the job, stops the workers and ends Spark. SIGTERM does the same, but keeps the job's checkpoints.

\b
Exit codes: 0 finished, 1 a job or the program failed, or a job was left running, 2 wrong usage, 130 interrupted,
143 terminated.
"""


class _Commands(click.Group):
    """Finds commands by name and imports them late, so that `headrace --help` does not load Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.endswith(".py"):
            ctx.fail(f"'{cmd_name}' is not a command: run a program with 'headrace run {cmd_name}'")
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)


@click.group(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="headrace")
def cli() -> None:
    """The group of all commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script: run a command and exit with its code."""
    try:
        code = cli.main(arguments, prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.UsageError as error:
        code = report_usage(error)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except Exception as error:
        code = report_failure(error)
    sys.exit(code if isinstance(code, int) else 0)
