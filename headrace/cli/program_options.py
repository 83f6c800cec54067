"""ProgramOptions: the program on a command line, its arguments, and the settings that its options stand for."""

import difflib
import functools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from headrace.api.executors import (
    ATTACHED,
    REMOTE,
    SESSION,
    TARGET,
    executor_name,
    runs_elsewhere,
)
from headrace.checkpoint.options import (
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
)
from headrace.cli.general_options import (
    KeyValue,
    json_option,
    namespace_option,
    namespace_settings,
)
from headrace.client.program import Program
from headrace.core.config import ConfigOption, Settings
from headrace.graph.pipeline_options import (
    PARALLELISM,
    PYTHON_ARCHIVES,
    PYTHON_EXECUTABLE,
    PYTHON_FILES,
    PYTHON_REQUIREMENTS,
)
from headrace.rest.home.connections import find_session
from headrace.rest.options import REST_ADDRESS, SESSION_NAME
from headrace.spark.options import MASTER

_PYTHON_SUFFIXES: Final = (".py", ".pyc", ".pyw")


class ProgramPath(click.ParamType[Path]):
    """Path of an existing Python program; Python itself reports mistakes inside the file."""

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
    """A command that passes all words after the program's name on to the program, as in Flink."""

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
        # Where `at` is past the end, the last option has no value, which click reports.
        if names_program and at <= len(args) and args[at : at + 1] != ["--"]:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


def _option_in(word: str, options: Mapping[str, click.Option]) -> click.Option | None:
    """Return the option that a word names, also if the word holds its value: `--name=value`, `-Dkey=value`."""
    name = word.partition("=")[0]
    letter = word[:2] if not word.startswith("--") else ""
    return options.get(word) or options.get(name) or options.get(letter)


def _takes_next_word(word: str, options: Mapping[str, click.Option]) -> bool:
    """Return whether an option's value is the next word.

    Among combined letters (`-vp 3`) only the last may take one.
    """
    if word in options:
        return not options[word].is_flag
    if word.startswith("--") or "=" in word:
        return False
    for place, letter in enumerate(word[1:], 2):
        option = options.get(f"-{letter}")
        if option is None or not option.is_flag:
            return option is not None and place == len(word)
    return False


class PythonOption(NamedTuple):
    """An option of Flink's for Python programs. `parameter`: the name of the command's argument for its value."""

    setting: ConfigOption[str]
    parameter: str
    names: tuple[str, ...]
    metavar: str
    help: str


PROGRAM_NAMES: Final = ("-py", "--python")
MODULE_NAMES: Final = ("-pym", "--pyModule")
PYTHON_OPTIONS: Final = (
    PythonOption(
        PYTHON_FILES,
        "python_files",
        ("-pyfs", "--pyFiles", "--python-files"),
        "PATHS",
        "Modules, packages or archives for the workers, comma-separated.",
    ),
    PythonOption(
        PYTHON_ARCHIVES,
        "python_archives",
        ("-pyarch", "--pyArchives"),
        "PATHS",
        "Archives for the workers, comma-separated.",
    ),
    PythonOption(
        PYTHON_REQUIREMENTS,
        "python_requirements",
        ("-pyreq", "--pyRequirements"),
        "FILE",
        "requirements.txt with packages for the workers.",
    ),
    PythonOption(
        PYTHON_EXECUTABLE,
        "python_executable",
        ("-pyexec", "--pyExecutable"),
        "PATH",
        "Interpreter of the workers.",
    ),
)
"""Options that each stand for one setting."""
REFUSED_OPTIONS: Final = (
    (
        ("-c", "--class"),
        "Java classes are not supported: name the module to run with -pym, and its archive with -pyfs",
    ),
    (
        ("-C", "--classpath"),
        "Java classes are not supported: add Python modules with -pyfs, and jars for Spark with -D spark.jars=...",
    ),
    (
        ("-pyclientexec", "--pyClientExecutable"),
        "the program runs in the interpreter of this command: run '-m headrace' with the other interpreter, and set "
        "the workers' interpreter with -pyexec",
    ),
    (
        ("-pypath", "--pyPythonPath"),
        "add the modules with -pyfs, which puts them on the workers' import path on every host",
    ),
)
"""Options of Flink that are not supported here, with the alternatives."""


_LAUNCH_OPTIONS: Final = (
    click.option(
        "-t",
        "--target",
        metavar="NAME",
        help="Where jobs run: application (default) on a cluster of the program's own; per-job on a cluster for each "
        "job, which ends with it; session on a cluster of this machine that 'headrace cluster start' started; remote "
        "on the cluster that -m names.",
    ),
    click.option(
        "-m",
        "--jobmanager",
        "address",
        metavar="HOST:PORT",
        help="Cluster of --target remote (default: the only one of this machine).",
    ),
    click.option(
        "-p",
        "--parallelism",
        type=click.IntRange(min=1),
        help="Default parallelism of the program's operators.",
    ),
    click.option(
        "-D",
        "definitions",
        type=KeyValue(),
        multiple=True,
        help="A setting. Keys that begin with spark. go to Spark, those with pipeline.global-job-parameters. to the "
        "program; any other must be listed by 'headrace options'.",
    ),
    namespace_option,
    click.option(
        "-v", "--verbose", "is_verbose", is_flag=True, help="Also log what Headrace itself does."
    ),
    json_option,
    click.argument("words", metavar="PROGRAM [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED),
)


@dataclass(frozen=True)
class ProgramOptions:
    """Values of the options of `headrace run` and `info`, which name a program and say where and how it runs."""

    definitions: tuple[tuple[str, str], ...] = ()
    """Settings of `-D`; an option wins over one of the same meaning."""
    parallelism: int | None = None
    target: str | None = None
    address: str | None = None
    """Address of the cluster that `-m` names."""
    namespace: str | None = None
    python: str | None = None
    """Path of the program, where `-py` names it."""
    module: str | None = None
    """Module to run, where `-pym` names it."""
    words: tuple[str, ...] = ()
    """Words behind the options, the program first unless `python` or `module` names it."""
    of_python: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings that PYTHON_OPTIONS stand for."""
    is_verbose: bool = False
    is_json: bool = False

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> "ProgramOptions":
        """Return the values among a command's arguments, which are taken out of `given`."""
        own = {each.name: given.pop(each.name) for each in fields(cls) if each.name in given}
        of_python = {each.setting.key: given.pop(each.parameter) for each in PYTHON_OPTIONS}
        chosen = {key: value for key, value in of_python.items() if value is not None}
        return cls(**own, of_python=chosen)

    def program(self) -> Program:
        """Return the program with its arguments. UsageError."""
        context = click.get_current_context()
        if self.python is not None and self.module is not None:
            raise click.UsageError("-py and -pym both name the program: give one of them", context)
        if self.module is not None:
            return Program(Path(), self.words, self.module)
        if self.python is None and not self.words:
            raise click.UsageError("Missing argument 'PROGRAM'.", context)
        named, arguments = (
            (self.words[0], self.words[1:]) if self.python is None else (self.python, self.words)
        )
        return Program(ProgramPath().convert(named, None, context), arguments)

    def settings(
        self,
        *,
        master: str | None = None,
        cluster_name: str | None = None,
        is_detached: bool = False,
        finds_session: bool = True,
    ) -> dict[str, str]:
        """Return the settings that the options stand for, and those of `run` alone that are arguments here.

        `finds_session`: False where nothing is going to be asked of a session. UsageError where they do not fit each
        other; NoSuchClusterError; SeveralClustersError; ClusterRestartingError; ConfigurationError.
        """
        settings = dict(self.definitions)
        if master is not None:
            settings[MASTER.key] = master
        if self.parallelism is not None:
            settings[PARALLELISM.key] = str(self.parallelism)
        settings |= namespace_settings(self.namespace, settings)
        settings |= _target_settings(
            self.target or settings.get(TARGET.key),
            cluster_name,
            self.address,
            is_detached=is_detached,
            finds_session=finds_session,
            given_name=settings.get(SESSION_NAME.key),
        )
        return {**settings, **self.of_python}


def program_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that name a program, as one ProgramOptions, its first argument.

    Options of Flink without a meaning here are refused.
    """

    @functools.wraps(command)
    def called(**given: Any) -> int:
        options = ProgramOptions.taken_from(given)
        return command(options, **given)

    for names, remedy in REFUSED_OPTIONS:

        def refuse(
            context: click.Context, option: click.Parameter, value: str | None, text: str = remedy
        ) -> None:
            if value is not None:
                raise click.UsageError(f"{'/'.join(option.opts)}: {text}", context)

        called = click.option(*names, hidden=True, expose_value=False, callback=refuse)(called)
    for each in reversed(PYTHON_OPTIONS):
        option = click.option(*each.names, each.parameter, metavar=each.metavar, help=each.help)
        called = option(called)
    called = click.option(
        *MODULE_NAMES, "module", metavar="MODULE", help="Module to run as the program."
    )(called)
    called = click.option(
        *PROGRAM_NAMES, "python", metavar="PATH", help="The program file (Flink's spelling)."
    )(called)
    for option in reversed(_LAUNCH_OPTIONS):
        called = option(called)
    return called


def _target_settings(
    target: str | None,
    cluster_name: str | None,
    address: str | None,
    *,
    is_detached: bool,
    finds_session: bool,
    given_name: str | None,
) -> dict[str, str]:
    """Return the settings of the target, after finding the session. `given_name`: the session that a setting names."""
    if target is None and (address is not None or cluster_name is not None):
        target = SESSION if address is None else REMOTE
    for option, value, needed in (("-m", address, REMOTE), ("--cluster", cluster_name, SESSION)):
        if value is not None and target != needed:
            raise click.UsageError(
                f"{option} needs --target {needed}, but the target is {target}",
                click.get_current_context(silent=True),
            )
    settings: dict[str, str] = {}
    if target is not None:
        settings[TARGET.key] = executor_name(Settings({TARGET.key: target}))
    if address is not None:
        settings[REST_ADDRESS.key] = address
    if target == SESSION and finds_session:
        found = find_session(
            cluster_name or given_name or None, lambda text: click.echo(text, err=True)
        )
        settings |= {TARGET.key: SESSION, SESSION_NAME.key: found.connection.name}
    if is_detached and runs_elsewhere(Settings(settings)):
        settings[ATTACHED.key] = "false"
    return settings


def recovery_settings(
    from_savepoint: str | None, allows_non_restored_state: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings of the recovery options. A path is relative to the current folder, not the program's."""
    settings: dict[str, str] = {}
    if from_savepoint is not None:
        # Imported late: it brings Arrow.
        from headrace.checkpoint.storage.file_systems import absolute_uri

        settings[RECOVERY_PATH.key] = absolute_uri(from_savepoint)
    if allows_non_restored_state:
        settings[IGNORE_UNCLAIMED_STATE.key] = "true"
    if claim_mode is not None:
        settings[RECOVERY_CLAIM_MODE.key] = claim_mode.upper().replace("-", "_")
    return settings
