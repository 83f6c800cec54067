"""Program: a Python program that is to be run. Source: Flink ApplicationConfiguration, PackagedProgram."""

from pathlib import Path

import msgspec


class Program(msgspec.Struct, frozen=True):
    """A program with its arguments.

    `path`: a file that Python runs. `module`: run this module instead, of the folder or archive `path`, or of
    `python.files`.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    module: str | None = None

    @property
    def name(self) -> str:
        """The name of a cluster of its own."""
        return self.module or self.path.stem
