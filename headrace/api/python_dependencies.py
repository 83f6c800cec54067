"""Python files that a job needs: kept as settings for the host, and importable here."""

import sys
from pathlib import Path

from headrace.api.program_settings import ProgramSettings
from headrace.core.config import ConfigOption
from headrace.core.errors import ProgramError
from headrace.graph.pipeline_options import PYTHON_FILES


def add_python_file(settings: ProgramSettings, file_path: str) -> None:
    """Put a module, a package folder or an archive on the import path of this process and of the workers."""
    path = Path(file_path)
    if not path.exists():
        raise ProgramError(f"the Python file '{file_path}' does not exist")
    _append(settings, PYTHON_FILES, str(path.resolve()))
    # A module is found in its folder; a folder or an archive is itself an entry of the path.
    entry = str(path.resolve().parent if path.suffix == ".py" else path.resolve())
    if entry not in sys.path:
        sys.path.insert(0, entry)


def _append(settings: ProgramSettings, option: ConfigOption[str], value: str) -> None:
    present = settings.get(option)
    settings.set(option, f"{present},{value}" if present else value)
