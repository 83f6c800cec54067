"""Python files of a program, `python.files`: modules, packages and archives that its functions import."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.interpreter import is_plain_folder
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import PYTHON_FILES


def python_files(settings: Settings) -> tuple[Path, ...]:
    """Return the existing paths of `python.files`; ConfigurationError names one that is not there."""
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
    """Return a job that names its files by absolute paths, which mean the same to a worker on this machine."""
    settings = {**graph.settings, PYTHON_FILES.key: ",".join(map(str, files))}
    return msgspec.structs.replace(graph, settings=settings) if files else graph


def pack(folder: Path, scratch: Path) -> Path:
    """Return an archive of a package, or of all that lies in a plain folder, importable as `folder` was."""
    archive = scratch / f"{folder.name}.zip"
    root = folder if is_plain_folder(folder) else folder.parent
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(root))
    return archive
