"""Where in the user's program a stream method was called: errors of operators without user code point there."""

import sys
from pathlib import Path
from typing import Final

_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + "/"


def call_site() -> str:
    """Return `file, line n` of the innermost frame outside this package, or empty text where there is none."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # a traceback would cost far more
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
