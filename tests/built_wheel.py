"""The wheel of this checkout, as `make wheel` builds it."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.floor_plan import ROOT


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)


def build_wheel(folder: Path) -> Path:
    """Build the wheel into an empty folder, and return its file."""
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), ".")
    (built,) = folder.iterdir()
    return built
