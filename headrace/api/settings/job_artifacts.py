"""Files of a program: its modules (`python.files`), requirements, archives and cached files, shipped with a job."""

import stat
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import size_text
from headrace.core.process.interpreter import is_plain_folder
from headrace.core.resource_profile import JOB_ENVIRONMENT
from headrace.graph.job_graph import ArtifactKind, JobArtifact, JobGraph
from headrace.graph.pipeline_options import (
    ARTIFACT_SIZE_MAX,
    CACHED_FILES,
    PYTHON_ARCHIVES,
    PYTHON_EXECUTABLE,
    PYTHON_FILES,
    PYTHON_REQUIREMENTS,
    archive_interpreter,
    cached_files,
    executable_cached_files,
    runs_in_batch,
)

ARCHIVE_SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz")
_HERE: Final = "file:"


def python_files(settings: Settings) -> tuple[Path, ...]:
    """Return the existing paths of `python.files`; ConfigurationError names a missing one."""
    found: list[Path] = []
    for text in settings.get_option(PYTHON_FILES).split(","):
        if not text.strip():
            continue
        path = Path(text.strip()).expanduser().resolve()
        if not path.exists():
            raise ConfigurationError(PYTHON_FILES.key, text, "there is no such file or folder")
        found.append(path)
    return tuple(found)


def with_python_files(graph: JobGraph, files: Sequence[Path]) -> JobGraph:
    """Return a job that names its files by absolute paths, which are valid for workers on this machine."""
    settings = {**graph.settings, PYTHON_FILES.key: ",".join(map(str, files))}
    return msgspec.structs.replace(graph, settings=settings) if files else graph


def pack(folder: Path, scratch: Path) -> Path:
    """Return an archive of a package, or of the content of a plain folder, that is imported like `folder`."""
    archive = scratch / f"{folder.name}.zip"
    root = folder if is_plain_folder(folder) else folder.parent
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(root))
    return archive


def job_artifacts(settings: Settings) -> tuple[JobArtifact, ...]:
    """Read the files that the settings of a job name.

    ConfigurationError if a file is missing, or if all together are too big.
    """
    reader = _Reader(int(settings.get_option(ARTIFACT_SIZE_MAX)))
    found: list[JobArtifact] = []
    requirements, _, cache = settings.get_option(PYTHON_REQUIREMENTS).partition("#")
    if requirements:
        path = _path(PYTHON_REQUIREMENTS, requirements)
        found.append(
            reader.file(PYTHON_REQUIREMENTS, ArtifactKind.REQUIREMENTS, "requirements", path)
        )
        if cache:
            folder = _path(PYTHON_REQUIREMENTS, cache)
            if not folder.is_dir():
                raise ConfigurationError(
                    PYTHON_REQUIREMENTS.key, cache, "it is not a folder of packages"
                )
            found.append(
                reader.folder(PYTHON_REQUIREMENTS, ArtifactKind.PACKAGES, "packages", folder)
            )
    for text in filter(None, settings.get_option(PYTHON_ARCHIVES).split(",")):
        said, _, name = text.strip().partition("#")
        path = _path(PYTHON_ARCHIVES, said)
        if not path.name.endswith(ARCHIVE_SUFFIXES):
            raise ConfigurationError(
                PYTHON_ARCHIVES.key,
                said,
                f"an archive ends in one of {', '.join(ARCHIVE_SUFFIXES)}",
            )
        found.append(reader.file(PYTHON_ARCHIVES, ArtifactKind.ARCHIVE, name or path.name, path))
    executables = executable_cached_files(settings.get_option(CACHED_FILES))
    for name, said in cached_files(settings.get_option(CACHED_FILES)).items():
        path = _path(CACHED_FILES, said)
        read = reader.folder if path.is_dir() else reader.file
        kind = ArtifactKind.ARCHIVE if path.is_dir() else ArtifactKind.FILE
        artifact = read(CACHED_FILES, kind, name, path)
        is_executable = artifact.is_executable or name in executables
        found.append(
            msgspec.structs.replace(artifact, is_executable=is_executable, is_cached_file=True)
        )
    _refuse_same_names(found)
    return tuple(found)


def with_environment(graph: JobGraph) -> JobGraph:
    """Return a job whose TaskManagers run in its own environment: requirements, or an interpreter.

    ConfigurationError for an interpreter in an archive in BATCH mode.
    """
    settings = Settings(graph.settings)
    archived, is_batch = archive_interpreter(settings), runs_in_batch(settings)
    if archived and is_batch:
        raise ConfigurationError(
            PYTHON_EXECUTABLE.key,
            archived,
            "in BATCH mode Spark starts the interpreter before anything unpacks an archive: run the job in STREAMING "
            "mode, or install the interpreter on the hosts and name its path there",
        )
    has_requirements = any(one.kind is ArtifactKind.REQUIREMENTS for one in graph.artifacts)
    if is_batch or not (archived or has_requirements):
        return graph
    what = archived or settings.get_option(PYTHON_EXECUTABLE) or "requirements"
    name = f"{JOB_ENVIRONMENT}{what}@{graph.job_id}"
    return msgspec.structs.replace(graph, python_executable=name)


def with_carried_python_files(graph: JobGraph, files: Sequence[Path]) -> JobGraph:
    """Return a job that carries its Python files, and no longer names their paths on this machine.

    ConfigurationError if the job's files are too big together.
    """
    reader = _Reader(int(Settings(graph.settings).get_option(ARTIFACT_SIZE_MAX)))
    reader.count(PYTHON_FILES, sum(len(each.content) for each in graph.artifacts), "python.files")
    found = [
        reader.folder(
            PYTHON_FILES,
            ArtifactKind.PYTHON_FOLDER,
            path.name,
            path,
            root=path if is_plain_folder(path) else path.parent,
        )
        if path.is_dir()
        else reader.file(PYTHON_FILES, ArtifactKind.PYTHON_FILE, path.name, path)
        for path in files
    ]
    settings = {key: value for key, value in graph.settings.items() if key != PYTHON_FILES.key}
    return msgspec.structs.replace(graph, artifacts=(*graph.artifacts, *found), settings=settings)


class _Reader:
    """Reads files; ConfigurationError once all of them together are too big."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max: Final = size_bytes_max
        self._size_bytes = 0

    def file(
        self, option: ConfigOption[str], kind: ArtifactKind, name: str, path: Path
    ) -> JobArtifact:
        """Return a file with its content."""
        try:
            self.count(option, path.stat().st_size, str(path))
            content = path.read_bytes()
            is_executable = bool(path.stat().st_mode & stat.S_IXUSR)
        except OSError as error:
            raise ConfigurationError(option.key, str(path), error.strerror or str(error)) from error
        return JobArtifact(kind, name, path.name, content, is_executable=is_executable)

    def folder(
        self,
        option: ConfigOption[str],
        kind: ArtifactKind,
        name: str,
        path: Path,
        root: Path | None = None,
    ) -> JobArtifact:
        """Return an archive of a folder, with paths relative to `root`, by default to the folder itself.

        Equal folders give equal bytes.
        """
        packed = BytesIO()
        # Compiled modules are written anew when they are imported.
        is_skipped = {"__pycache__"} if kind is ArtifactKind.PYTHON_FOLDER else set[str]()
        try:
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(path.rglob("*")):
                    if file.is_file() and is_skipped.isdisjoint(file.parts):
                        self.count(option, file.stat().st_size, str(file))
                        entry = zipfile.ZipInfo(str(file.relative_to(root or path)))
                        entry.external_attr = (file.stat().st_mode & 0o777) << 16
                        archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
        except OSError as error:
            raise ConfigurationError(option.key, str(path), error.strerror or str(error)) from error
        return JobArtifact(kind, name, f"{path.name}.zip", packed.getvalue())

    def count(self, option: ConfigOption[str], size_bytes: int, said: str) -> None:
        """Add the size of the files that the setting names as `said`."""
        self._size_bytes += size_bytes
        if self._size_bytes > self._size_bytes_max:
            raise ConfigurationError(
                option.key,
                said,
                f"with this file, the files of the job are larger than {size_text(self._size_bytes_max)} "
                f"('{ARTIFACT_SIZE_MAX.key}'): read large data from a file system that the workers share",
            )


def _path(option: ConfigOption[str], said: str) -> Path:
    path = Path(said.removeprefix(_HERE)).expanduser().absolute()
    if not path.exists():
        raise ConfigurationError(
            option.key, said, "there is no such file or folder on this machine"
        )
    return path


def _refuse_same_names(artifacts: list[JobArtifact]) -> None:
    names: set[str] = set()
    for artifact in artifacts:
        if artifact.name in names:
            option = CACHED_FILES if artifact.is_cached_file else PYTHON_ARCHIVES
            raise ConfigurationError(
                option.key, artifact.name, "two files of the job have this name"
            )
        names.add(artifact.name)
