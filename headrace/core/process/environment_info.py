"""Environment information: the interpreter of this process, and the folders from which it imports."""

import platform
import sys

import msgspec


class EnvironmentInfo(msgspec.Struct, frozen=True):
    """The environment of one process. `options` are the interpreter's flags, never arguments of the program.

    `path`: the folders from which modules come.
    """

    version: str
    architecture: str
    options: tuple[str, ...]
    path: tuple[str, ...]


def environment_info() -> EnvironmentInfo:
    """Return the environment of this process. Arguments and variables, which may hold secrets, are no part of it."""
    return EnvironmentInfo(
        version=platform.python_version(),
        architecture=platform.machine(),
        options=_options(),
        path=tuple(sys.path),
    )


def _options() -> tuple[str, ...]:
    flags = [
        f"{name}={int(value)}"
        for name in dir(sys.flags)
        if not name.startswith(("_", "n_", "count", "index"))
        and (value := getattr(sys.flags, name))
    ]
    # The only way to the options that were given with -X.
    given = sys._xoptions  # pyright: ignore[reportPrivateUsage]
    extensions = [
        f"-X {name}" if value is True else f"-X {name}={value}" for name, value in given.items()
    ]
    return (*flags, *extensions, *(f"-W {each}" for each in sys.warnoptions))
