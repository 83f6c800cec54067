"""A ZooKeeper server of Debian's package as a process that tests stop and start again; alone, and on the loopback."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final

from testkit.ports import free_ports
from testkit.waiting import wait_until

_JAR: Final = "/usr/share/java/zookeeper.jar"  # names the others that it needs
_ATTEMPTS: Final = 5


class ZooKeeperServer:
    """One server, whose data stays while it is stopped."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder: Final = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port: int = 0
        for _ in range(_ATTEMPTS):
            (self.port,) = free_ports()
            # Another process may be faster at that port.
            with contextlib.suppress(ChildProcessError):
                self.start()
                return
        raise AssertionError(self.log)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def options(self, *, session: str = "10 s", tolerates: bool = False) -> dict[str, str]:
        """Return the settings of a driver that elects its leader here. `session`: its timeout."""
        client = "high-availability.zookeeper.client"
        return {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": self.address,
            f"{client}.session-timeout": session,
            f"{client}.retry-wait": "200 ms",
            f"{client}.tolerate-suspended-connections": str(tolerates).lower(),
        }

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        configuration = self._folder / "zoo.cfg"
        configuration.write_text(
            f"tickTime=500\ndataDir={self._folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxSessionTimeout=90000\n4lw.commands.whitelist=srvr,dump\n"
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", _JAR,
                    "org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration),
                ],
                cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(self._answers, 60, "an answer of ZooKeeper")

    @property
    def session_count(self) -> int:
        """Return the number of sessions that have not expired."""
        return len(re.findall(r"^\t0x", self._ask(b"dump").partition("ephemeral")[0], re.MULTILINE))

    def stop(self) -> None:
        """Kill it: no client is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError(self.log)
        with contextlib.suppress(OSError):
            return "Mode: standalone" in self._ask(b"srvr")
        return False

    def _ask(self, word: bytes) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(word)
            with connection.makefile("rb") as answer:
                return answer.read().decode()


@contextlib.contextmanager
def zookeeper_server(folder: Path) -> Generator[ZooKeeperServer]:
    server = ZooKeeperServer(folder)
    try:
        yield server
    finally:
        server.stop()
