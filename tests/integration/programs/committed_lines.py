"""The lines that file sinks have committed below a folder, as its readers see them."""

import os
from collections import Counter
from pathlib import Path

_HIDDEN = (".", "_")


def committed_lines(folder: Path) -> Counter[str]:
    """Count each line. Files in hidden folders are not looked at: sinks move and delete them meanwhile."""
    lines = Counter[str]()
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for name in names:
            if not name.startswith(_HIDDEN):
                lines.update(Path(path, name).read_text().splitlines())
    return lines
