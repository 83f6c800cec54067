"""Program: a Python program to be run. Source: Flink ApplicationConfiguration, PackagedProgram."""

from pathlib import Path

import msgspec


class Program(msgspec.Struct, frozen=True):
    """A program with its arguments.

    `path`: a file that Python runs. `module`: run this module instead, from the folder or archive `path`, or from
    `python.files`.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    module: str | None = None

    @property
    def name(self) -> str:
        """Return the default name of the program's own cluster."""
        return self.module or self.path.stem
