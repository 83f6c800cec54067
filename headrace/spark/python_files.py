"""Ships the user's own modules: `python.files` reach the driver's import path and, through Spark, every worker's."""

import sys
import zipfile
from pathlib import Path

from pyspark.core.context import SparkContext

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
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


def put_on_path(files: tuple[Path, ...]) -> None:
    """Make `files` importable here: a module's folder, a package's parent, an archive itself."""
    for path in files:
        entry = str(path if _is_archive(path) or _is_plain_folder(path) else path.parent)
        if entry not in sys.path:
            sys.path.insert(1, entry)


def ship(context: SparkContext, files: tuple[Path, ...], scratch: Path) -> None:
    """Have Spark bring `files` to its workers; folders are packed into `scratch` first."""
    for path in files:
        context.addPyFile(str(pack(path, scratch) if path.is_dir() else path))


def pack(folder: Path, scratch: Path) -> Path:
    """Return an archive of a package, or of all that lies in a plain folder, importable as `folder` was."""
    archive = scratch / f"{folder.name}.zip"
    root = folder if _is_plain_folder(folder) else folder.parent
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(root))
    return archive


def _is_archive(path: Path) -> bool:
    return path.suffix in (".zip", ".egg", ".whl")


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not (path / "__init__.py").exists()
