"""The files of stored results that TaskManagers have below a folder."""

import os
from pathlib import Path


def files(directory: Path) -> list[Path]:
    """List them; a TaskManager may delete its folder meanwhile, which then holds none."""
    return [Path(folder, name) for folder, _, names in os.walk(directory) for name in names]
