"""The path of a program to run, and the settings for which options of the command line stand."""

import difflib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from headrace.api.executors import (
    ATTACHED,
    TARGET,
    executor_name,
    runs_elsewhere,
)
from headrace.checkpoint.options import (
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
)
from headrace.checkpoint.storage.file_systems import absolute_uri
from headrace.core.config import Settings
from headrace.graph.pipeline_options import (
    PARALLELISM,
    PYTHON_ARCHIVES,
    PYTHON_EXECUTABLE,
    PYTHON_FILES,
    PYTHON_REQUIREMENTS,
)
from headrace.rest.connections import find_session
from headrace.rest.options import REST_ADDRESS

_PYTHON_SUFFIXES: Final = (".py", ".pyc", ".pyw")


class ProgramPath(click.ParamType[Path]):
    """An existing file that Python can run. Python itself reports mistakes inside it."""

    name = "program"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        path = Path(value)
        problem = _problem_of(path)
        if problem:
            raise click.UsageError(problem, ctx)
        return path


def _problem_of(path: Path) -> str:
    try:
        if path.is_dir():
            programs = sorted(one.name for one in path.glob("*.py"))[:3]
            inside = f", such as {path / programs[0]}" if programs else ""
            return f"'{path}' is a folder: name the program in it{inside}"
        if not path.exists():
            return f"there is no program '{path}'{_suggestion(path)}"
        if not path.is_file():
            return ""
        source = path.read_bytes()
    except OSError as error:
        return f"the program '{path}' cannot be read: {error.strerror}"
    if path.suffix == ".jar":
        return f"'{path}' is a Java archive, and Headrace runs Python programs"
    if path.suffix in _PYTHON_SUFFIXES or zipfile.is_zipfile(path):
        return ""
    return "" if _is_python(source) else f"'{path}' is not a Python program"


def _is_python(source: bytes) -> bool:
    try:
        compile(source, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _suggestion(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder '{folder}'"
    names = [one.name for one in folder.glob("*.py")]
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{folder / near[0]}'?" if near else f" in {folder.resolve()}"


class ProgramCommand(click.Command):
    """A command whose options end at the first word that is none, once an option has named the program, as Flink's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {
            name: each
            for each in self.params
            if isinstance(each, click.Option)
            for name in (*each.opts, *each.secondary_opts)
        }
        at, names_program = 0, False
        while at < len(args) and (option := _option_in(args[at], options)) is not None:
            names_program = names_program or option.name in ("python", "module")
            at += 2 if _takes_next_word(args[at], options) else 1
        # Behind the end, the last option misses its value: to say so is click's.
        if names_program and at <= len(args) and args[at : at + 1] != ["--"]:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _option_in(word: str, options: Mapping[str, click.Option]) -> click.Option | None:
    """Return the option that a word is, also where its value is in the word: `--name=value`, `-Dkey=value`."""
    name = word.partition("=")[0]
    letter = word[:2] if not word.startswith("--") else ""
    return options.get(word) or options.get(name) or options.get(letter)


def _takes_next_word(word: str, options: Mapping[str, click.Option]) -> bool:
    """Return whether the value of an option is the next word; of letters behind one dash that is the last one's."""
    if word in options:
        return not options[word].is_flag
    if word.startswith("--") or "=" in word:
        return False
    for place, letter in enumerate(word[1:], 2):
        option = options.get(f"-{letter}")
        if option is None or not option.is_flag:
            return option is not None and place == len(word)
    return False


def program_in(
    words: tuple[str, ...], python: str | None, module: str | None
) -> tuple[Path, tuple[str, ...]]:
    """Return the program, or the folder whose module is named, and the arguments. UsageError.

    `words`: what stands behind the options, the program first unless `python` or `module` names it.
    """
    context = click.get_current_context()
    if python is not None and module is not None:
        raise click.UsageError("-py and -pym both name the program: give one of them", context)
    if module is not None:
        return Path(), words
    if python is None and not words:
        raise click.UsageError("Missing argument 'PROGRAM'.", context)
    named, arguments = (words[0], words[1:]) if python is None else (python, words)
    return ProgramPath().convert(named, None, context), arguments


_PYTHON_OPTIONS: Final = (
    (
        PYTHON_FILES,
        ("-pyfs", "--pyFiles", "--python-files"),
        "PATHS",
        "Modules, packages or archives for the workers, comma-separated.",
    ),
    (
        PYTHON_ARCHIVES,
        ("-pyarch", "--pyArchives"),
        "PATHS",
        "Archives for the workers, comma-separated.",
    ),
    (
        PYTHON_REQUIREMENTS,
        ("-pyreq", "--pyRequirements"),
        "FILE",
        "requirements.txt with packages for the workers.",
    ),
    (PYTHON_EXECUTABLE, ("-pyexec", "--pyExecutable"), "PATH", "Interpreter of the workers."),
)


def python_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command Flink's options that name a program, and those that stand for a setting each.

    Arguments are `python`, `module` and, for settings, the keys with `_`, for `python_settings`.
    """
    for setting, names, metavar, text in reversed(_PYTHON_OPTIONS):
        name = setting.key.replace(".", "_")
        command = click.option(*names, name, metavar=metavar, help=text)(command)
    command = click.option(
        "-pym", "--pyModule", "module", metavar="MODULE", help="Module to run as program."
    )(command)
    return click.option(
        "-py", "--python", "python", metavar="PATH", help="The program, as Flink names it."
    )(command)


def python_settings(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the settings that the options of `python_options` stand for."""
    return {name.replace("_", "."): value for name, value in given.items() if value is not None}


REMOTE: Final = "remote"
"""Name of the executor of clusters that run already."""
SESSION: Final = "session"


def target_settings(
    target: str | None,
    cluster_name: str | None,
    address: str | None,
    *,
    is_detached: bool,
    finds_session: bool = True,
) -> dict[str, str]:
    """Return the settings that the options of the target stand for, once a session that is meant was found.

    `finds_session`: False where nothing is going to be asked of the session.

    UsageError where they do not fit each other; NoSuchClusterError; SeveralClustersError.
    """
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
        # Imported late: nobody else needs it.
        from headrace.client.cluster_descriptor import CONNECTION_FILE

        found = find_session(cluster_name, lambda text: click.echo(text, err=True))
        settings[CONNECTION_FILE.key] = str(found.file)
    if is_detached and runs_elsewhere(Settings(settings)):
        settings[ATTACHED.key] = "false"
    return settings


def run_settings(
    master: str | None,
    parallelism: int | None,
    definitions: dict[str, str],
) -> dict[str, str]:
    """Return the settings that the options stand for; an option wins over a `-D` of the same meaning."""
    settings = dict(definitions)
    if master is not None:
        settings["headrace.spark.master"] = master
    if parallelism is not None:
        settings[PARALLELISM.key] = str(parallelism)
    return settings


def recovery_settings(
    from_savepoint: str | None, allows_non_restored_state: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings that the options of recovery stand for. A path is meant from here, not from the program."""
    settings: dict[str, str] = {}
    if from_savepoint is not None:
        settings[RECOVERY_PATH.key] = absolute_uri(from_savepoint)
    if allows_non_restored_state:
        settings[IGNORE_UNCLAIMED_STATE.key] = "true"
    if claim_mode is not None:
        settings[RECOVERY_CLAIM_MODE.key] = claim_mode.upper().replace("-", "_")
    return settings
