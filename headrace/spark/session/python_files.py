"""Ships the user's own modules, `python.files`, to every worker of Spark."""

from pathlib import Path

from pyspark.core.context import SparkContext

from headrace.api.settings.job_artifacts import pack
from headrace.core.errors import ProgramError
from headrace.graph.pipeline_options import PYTHON_FILES


class LateFilesError(ProgramError):
    """A job brings files that TaskManagers on other machines cannot import, as they run already."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        names = ", ".join(str(file) for file in files)
        super().__init__(
            f"{names} ({PYTHON_FILES.key}) came after TaskManagers were started, which cannot import it: call "
            f"add_python_file before the program's first job, or use --python-files"
        )


class ShippedFiles:
    """Python files that workers started from now on will find. Pure.

    `are_seen`: the workers see the driver's files, as on one machine. Each task then finds the files of its job itself;
    elsewhere a running worker has only the files that were shipped before it started.
    """

    def __init__(self, *, are_seen: bool) -> None:
        self._are_seen = are_seen
        self._files: set[Path] = set()
        self._is_final = False

    def workers_start(self) -> None:
        """Note that TaskManagers run: Spark would ship further files only to later ones."""
        self._is_final = True

    def add(self, files: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files that are new and must be shipped now. LateFilesError if it is too late."""
        new = tuple(file for file in files if file not in self._files)
        if new and self._is_final:
            if self._are_seen:
                return ()
            raise LateFilesError(new)
        self._files.update(new)
        return new


def ship(context: SparkContext, files: tuple[Path, ...], scratch: Path) -> None:
    """Have Spark ship `files` to its workers; folders are packed into `scratch` first."""
    for path in files:
        context.addPyFile(str(pack(path, scratch) if path.is_dir() else path))
