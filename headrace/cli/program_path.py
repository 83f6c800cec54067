"""ProgramPath: the argument that names the program of a command, an existing file that Python can run."""

import difflib
import zipfile
from pathlib import Path
from typing import Final

import click

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
