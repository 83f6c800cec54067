"""`headrace`: the command line. Each command is a file of this folder, imported only when it runs."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from headrace import __version__
from headrace.cli.command_table import CommandTable, Entry
from headrace.cli.logs import EXIT_FAILED, EXIT_INTERRUPTED, report_failure, report_usage
from headrace.core.error_text import describe

COMMANDS: Final = {
    "cancel": Entry("headrace.cli.jobs.cancel:cancel", "Cancel a job."),
    "checkpoint": Entry(
        "headrace.cli.jobs.checkpoint:checkpoint",
        "Take a checkpoint of a job, or look at checkpoints in files.",
    ),
    "cluster": Entry("headrace.cli.main:cluster", "Start, list and stop clusters."),
    "completion": Entry(
        "headrace.cli.completion:completion", "Print the script for shell completion."
    ),
    "exceptions": Entry(
        "headrace.cli.jobs.exceptions:exceptions", "Show why a job failed or restarted."
    ),
    "flamegraph": Entry(
        "headrace.cli.jobs.flamegraph:flamegraph", "Draw a flame graph of a vertex."
    ),
    "history-server": Entry(
        "headrace.cli.history_server:history_server",
        "Show jobs that have ended, from their archives.",
    ),
    "info": Entry("headrace.cli.info:info", "Print the plan of a program as JSON."),
    "job": Entry("headrace.cli.main:job", "Same commands under the prefix `job`."),
    "list": Entry("headrace.cli.jobs.list_jobs:list_command", "List the jobs of a cluster."),
    "logs": Entry("headrace.cli.jobs.logs:logs", "Print a log of a cluster."),
    "metrics": Entry("headrace.cli.jobs.metrics:metrics", "Print metrics."),
    "open": Entry(
        "headrace.cli.jobs.open_dashboard:open_dashboard", "Open the dashboard in a browser."
    ),
    "options": Entry("headrace.cli.options:options", "List the settings that -D accepts."),
    "rescale-info": Entry(
        "headrace.cli.jobs.rescale_info:rescale_info", "Show how a job may be rescaled."
    ),
    "run": Entry("headrace.cli.run:run", "Run a program."),
    "savepoint": Entry(
        "headrace.cli.jobs.savepoint:savepoint",
        "Take a savepoint of a job, or look at savepoints in files.",
    ),
    "shuffle-service": Entry(
        "headrace.cli.shuffle_service:shuffle_service", "Run a remote shuffle service."
    ),
    "state": Entry("headrace.cli.jobs.state:state", "Show the state of a job."),
    "stop": Entry("headrace.cli.jobs.stop:stop", "Stop a job with a savepoint."),
    "top": Entry("headrace.cli.jobs.top:top", "Watch a job."),
    "trace": Entry("headrace.cli.trace:trace", "Show parts of Headrace at work, step by step."),
    "warm-up": Entry("headrace.cli.warm_up:warm_up", "Make Spark start faster on this machine."),
}
_ADVICE: Final = "options of several letters begin with two dashes"
_JOB_COMMANDS: Final = (
    "cancel", "checkpoint", "exceptions", "flamegraph", "list", "logs", "metrics", "open", "rescale-info", "savepoint",
    "state", "stop", "top",
)  # fmt: skip

_CLUSTER_COMMANDS: Final = {
    "info": Entry("headrace.cli.cluster.cluster_info:cluster_info", "Show a cluster."),
    "list": Entry("headrace.cli.cluster.list_clusters:list_clusters", "List the clusters of this machine."),
    "start": Entry("headrace.cli.cluster.start_cluster:start_cluster", "Start a cluster that runs jobs for clients."),
    "stop": Entry("headrace.cli.cluster.stop_cluster:stop_cluster", "Stop a cluster, and cancel its jobs."),
}  # fmt: skip

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
  headrace run -d job.py                             detached: it keeps running when you log out
  headrace cluster start                             a cluster that runs jobs until it is stopped
  headrace list                                      the jobs that run on this machine
  headrace top                                       watch the only running job
  headrace state enrich                              the sizes of an operator's states
  headrace exceptions JOB_ID                         why it failed, with the line of your program
  headrace savepoint JOB_ID /data/savepoints         to continue from later: headrace run -s
  headrace stop JOB_ID                               end it with a savepoint
  headrace checkpoint list /data/checkpoints         the checkpoints in a folder
  headrace history-server /data/history              the dashboard of jobs whose clusters have ended
  source <(headrace completion bash)                 let the shell complete commands and job ids
  headrace trace exchange                            credits and frames between two tasks, step by step
  headrace warm-up                                   once: makes later starts of Spark faster

Ctrl-C cancels the job, stops the workers and ends Spark. SIGTERM does the same, but keeps the job's checkpoints.

\b
Exit codes, as Flink's: 0 finished, 1 a job, the program or a command failed, wrong usage, or a job was left running;
130 interrupted, 143 terminated.
"""


_JOB_HELP: Final = """\
Same commands under the prefix `job`: `headrace job list` is `headrace list`.

\b
Try it:
  headrace job list
  headrace job cancel 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
"""
job = CommandTable("job", table={name: COMMANDS[name] for name in _JOB_COMMANDS}, help=_JOB_HELP)
"""The group of commands for jobs."""


_CLUSTER_HELP: Final = """\
Session clusters, which run jobs for any client until they are stopped.

\b
Try it:
  headrace cluster start                          on this machine
  headrace cluster start --name nightly --master spark://host:7077 -D taskmanager.numberOfTaskSlots=2
  headrace cluster list                           clusters and running programs of this machine
  headrace cluster info nightly
  headrace cluster stop nightly                   its jobs are cancelled; their checkpoints are kept
"""
cluster = CommandTable("cluster", table=_CLUSTER_COMMANDS, help=_CLUSTER_HELP)
"""The group of commands for clusters."""


cli = click.version_option(__version__, "-v", "--version", prog_name="headrace")(
    CommandTable(
        "headrace",
        table=COMMANDS,
        help=_HELP,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
)
"""The group of all commands."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    try:
        code = cli.main(arguments, prog_name="headrace", standalone_mode=False)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.UsageError as error:
        error = said_whole(error, sys.argv[1:] if arguments is None else arguments)
        _answer_errors(arguments, error.format_message())
        code = report_usage(error)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read it has seen enough, as `head` has; the interpreter would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_FAILED
    except Exception as error:
        _answer_errors(arguments, describe(error, wants_details=False)[0])
        code = report_failure(error)
    sys.exit(code if isinstance(code, int) else 0)


def _answer_errors(arguments: Sequence[str] | None, message: str) -> None:
    """Print the JSON document of a command that failed before it printed one, if one is wanted."""
    if _wants_json(sys.argv[1:] if arguments is None else arguments):
        # Imported late: it brings the settings.
        from headrace.cli.general_options import print_json

        print_json({"errors": [message]})


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether `--json` is an option of the command, and not of a program that it runs."""
    command: click.Command | None = cli
    rest = list(words)
    while rest and command is not None:
        word = rest.pop(0)
        if word == "--json":
            return True
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        options = {
            each: one
            for one in command.params
            if isinstance(one, click.Option)
            for each in one.opts
        }
        option = options.get(word) or options.get(name)
        if option is not None:
            if not option.is_flag and word in options:
                del rest[:1]
        elif isinstance(command, click.Group) and not word.startswith("-"):
            command = command.get_command(click.Context(command), word)
        elif not command.context_settings.get("allow_interspersed_args", True):
            return False
    return False


def said_whole(error: click.UsageError, words: Sequence[str]) -> click.UsageError:
    """Return the error with an option of several letters as it was written, if that is what was wrong.

    Flink's parser takes them behind one dash; click reads `-parallelism 3` as `-p arallelism`.
    """
    if error.ctx is None:
        return error
    options = _options_of(error.ctx.command)
    # An option `--name` written with one dash, however click parsed it.
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
    """Return the words with one dash that are not options, up to those of a program."""
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
    """Return how a word was misread, or an empty string if it did not cause this error."""
    if isinstance(error, click.NoSuchOption) and error.option_name[1:] in word[1:]:
        return f"there is no option '{word}'"
    if (
        isinstance(error, click.BadParameter)
        and error.param is not None
        and word[:2] in error.param.opts
    ):
        return f"{error.format_message().rstrip('.')}: '{word}' is read as '{word[:2]} {word[2:]}'"
    return ""
