"""What the programs of all engines share: a line is asked for a turn, another line says how it went.

Standard library only, as each engine has an interpreter of its own. A line in is words of the form `name=value`; the
turn's latencies go to the file `out`, as 64-bit integers of microseconds in the machine's byte order. A line out begins
with ANSWER, since engines print what they like; READY comes when the program can be asked.
"""

import array
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ANSWER: Final = "latency:"
READY: Final = "ready"
DONE: Final = "done"
REASON_CHARACTERS: Final = 300


@dataclass(frozen=True)
class Asked:
    """One turn: `rate` records per second in all, for `seconds`, of which the first are not counted."""

    rate: int
    seconds: float
    warm_up_seconds: float
    keys: int
    parallelism: int
    checkpoint_interval_ms: int
    buffer_timeout_ms: int | None
    target_ms: int | None
    out: Path

    def line(self) -> str:
        """Return it as a program reads it."""
        return " ".join(f"{name}={value}" for name, value in vars(self).items())

    @classmethod
    def of(cls, line: str) -> "Asked":
        """Read what `line` gave."""
        words = dict(word.split("=", 1) for word in line.split())
        whole = {name: None if words[name] == "None" else int(words[name]) for name in _WHOLE}
        return cls(
            rate=int(words["rate"]),
            seconds=float(words["seconds"]),
            warm_up_seconds=float(words["warm_up_seconds"]),
            keys=int(words["keys"]),
            parallelism=int(words["parallelism"]),
            checkpoint_interval_ms=int(words["checkpoint_interval_ms"]),
            out=Path(words["out"]),
            **whole,
        )


_WHOLE: Final = ("buffer_timeout_ms", "target_ms")


def warm(seen: Sequence[tuple[int, int]], warm_up_seconds: float) -> list[int]:
    """Return the latencies, in microseconds, of pairs (due, latency) in nanoseconds that were due after the warm-up."""
    begin_ns = min((due for due, _ in seen), default=0) + warm_up_seconds * 1e9
    return [latency // 1000 for due, latency in seen if due >= begin_ns]


def serve(run: Callable[[Asked], Iterable[int]]) -> None:
    """Be the program of an engine: `run` returns the latencies of a turn; what it raises is told, and ends nothing."""
    _say(READY)
    for line in sys.stdin:
        asked = Asked.of(line)
        try:
            asked.out.write_bytes(array.array("q", run(asked)).tobytes())
            _say(DONE)
        except Exception as error:
            _say(f"{type(error).__name__}: {error}".replace("\n", " ")[:REASON_CHARACTERS])


def _say(what: str) -> None:
    print(f"{ANSWER} {what}", flush=True)
