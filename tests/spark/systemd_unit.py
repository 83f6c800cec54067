"""SystemdUnit: runs the command of a unit file as systemd does, and starts it again when it fails."""

import re
import shlex
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headrace.core.threads import start_thread
from tests.spark.programs import Program


class SystemdUnit:
    """A service of `Restart=on-failure`: a signal, or another exit code than 0, starts it again; `stop` ends it.

    `replaced` has the specifiers of systemd, and the places of other hosts, with what stands for them here. `start`
    starts a command.
    """

    def __init__(
        self, file: Path, replaced: Mapping[str, str], start: Callable[[list[str]], Program]
    ) -> None:
        text = re.sub(r"\\\n\s*", "", file.read_text())
        self._lines: Final = dict(
            line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#"
        )
        assert self._lines["Restart"] == "on-failure"
        assert self._lines["KillSignal"] == "SIGTERM"
        command = self._lines["ExecStart"]
        for name, value in replaced.items():
            command = command.replace(name, value)
        self.command: Final = shlex.split(command)
        self.lives: Final[list[Program]] = []
        self._start: Final = start
        self._is_stopping = threading.Event()
        self._thread: Final = start_thread("systemd-unit", self._run)

    def stop(self) -> int:
        """Send SIGTERM as `systemctl stop` does, and return the exit code of the last life."""
        self._is_stopping.set()
        self.lives[-1].process.terminate()
        self._thread.join(float(self._lines["TimeoutStopSec"]))
        assert not self._thread.is_alive(), self.lives[-1].report()
        return self.lives[-1].process.wait()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            life = self._start(self.command)
            self.lives.append(life)
            if life.process.wait() == 0:
                return
            self._is_stopping.wait(float(self._lines["RestartSec"]))
