"""An engine's program while it is asked for turns: started once, then a line in and a line out for each of them."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from benchmarks.keyed_latency.peers.registry import Engine
from benchmarks.keyed_latency.peers.serving import ANSWER, DONE, READY, Asked
from benchmarks.nexmark.peers.registry import PEERS
from benchmarks.nexmark.peers.setup import ROOT, peer_python
from benchmarks.nexmark.peers.turns import PeerFailedError, reason
from headrace.spark.session.java_runtime import ensure_java

START_SECONDS: Final = 180
END_SECONDS: Final = 30
GRACE_SECONDS: Final = 180
"""How much longer than its load a turn may take."""
_PACKAGE: Final = "benchmarks.keyed_latency.peers"
Latencies = np.ndarray[Any, np.dtype[np.int64]]


class EngineProgram:
    """A process, and what it started, until the end of the block. PeerFailedError where it does not do as asked."""

    def __init__(self, engine: Engine, scratch: Path) -> None:
        self.engine = engine
        self._scratch = scratch
        scratch.mkdir()
        self._errors = scratch / "stderr"

    def __enter__(self) -> "EngineProgram":
        environment = dict(os.environ)
        ensure_java(environment)
        python = peer_python(PEERS[self.engine.environment])
        command = [python, "-m", f"{_PACKAGE}.{self.engine.module}", str(self._scratch)]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._kill()
            self._process.wait()

    def await_ready(self) -> None:
        """Wait until it can be asked."""
        self._expect(READY, START_SECONDS)

    def ask(self, asked: Asked) -> Latencies:
        """Let it run a turn; return the latencies, in microseconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(asked.line() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailedError(reason(self._errors.read_text())) from error
        self._expect(DONE, asked.seconds + GRACE_SECONDS)
        latencies = np.fromfile(asked.out, dtype=np.int64)
        if len(latencies) == 0:
            raise PeerFailedError("no record came after the warm-up")
        return latencies

    def _expect(self, wanted: str, seconds: float) -> None:
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(ANSWER):
                    answer = line.removeprefix(ANSWER).strip()
                    if answer != wanted:
                        raise PeerFailedError(answer)
                    return
        finally:
            is_over = not timer.is_alive()
            timer.cancel()
        raise PeerFailedError(
            f"not done within {seconds:g} s" if is_over else reason(self._errors.read_text())
        )

    def _kill(self) -> None:
        """End it with all that it started and that did not leave its session."""
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
