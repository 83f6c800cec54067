"""Who takes part: each engine's program and environment, and each way of setting it, with what it guarantees so set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.nexmark.peers.registry import PEERS

HEADRACE: Final = "headrace"
EXACTLY_ONCE: Final = "state exactly once: checkpoints to files every {interval} ms"
NOTHING: Final = "none: no recovery, counts are lost with a worker"


@dataclass(frozen=True)
class Engine:
    """A program that is asked for turns. `environment` names the peer of Nexmark whose environment it runs in."""

    name: str
    module: str
    environment: str


@dataclass(frozen=True)
class Contender:
    """An engine, set in one way; a target, where there is one, takes the place of the buffer timeout."""

    engine: Engine
    title: str
    guarantee: str
    buffer_timeout_ms: int | None = None
    target_ms: int | None = None

    @property
    def name(self) -> str:
        """What it is called in results."""
        parts = (("timeout", self.buffer_timeout_ms), ("target", self.target_ms))
        return "-".join(
            [self.engine.name, *(f"{what}-{ms}" for what, ms in parts if ms is not None)]
        )


_HEADRACE: Final = Engine(HEADRACE, "headrace_spark", "headrace")
_FLINK: Final = Engine("flink", "flink_jvm", "flink")
_BYTEWAX: Final = Engine("bytewax", "bytewax_flow", "bytewax")
CONTENDERS: Final = (
    Contender(_HEADRACE, "Headrace, timeout 0 ms", EXACTLY_ONCE, buffer_timeout_ms=0),
    Contender(_HEADRACE, "Headrace, timeout 5 ms", EXACTLY_ONCE, buffer_timeout_ms=5),
    Contender(_HEADRACE, "Headrace, target 5 ms", EXACTLY_ONCE, target_ms=5),
    Contender(_FLINK, "Flink, timeout 0 ms", EXACTLY_ONCE, buffer_timeout_ms=0),
    Contender(_FLINK, "Flink, timeout 1 ms", EXACTLY_ONCE, buffer_timeout_ms=1),
    Contender(_FLINK, "Flink, timeout 5 ms", EXACTLY_ONCE, buffer_timeout_ms=5),
    Contender(_BYTEWAX, "bytewax", NOTHING),
)
ENGINES: Final = {contender.engine.name: contender.engine for contender in CONTENDERS}


def contenders_of(names: Sequence[str]) -> list[Contender]:
    """Return all ways of setting the engines of these names."""
    return [contender for contender in CONTENDERS if contender.engine.name in names]


def packages_of(engine: Engine) -> tuple[str, ...]:
    """Return the pinned versions that an engine's environment is made of; none for our own."""
    return PEERS[engine.environment].packages
