"""Lets engines carry the same load in turns, A B A B: all are started before, and each is asked once to get warm.

Of each contender the percentiles of every turn are kept, and their medians. One that fails is named with its reason,
and has no further turns.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.keyed_latency.peers.engine_program import EngineProgram
from benchmarks.keyed_latency.peers.noise import OthersShare
from benchmarks.keyed_latency.peers.registry import Contender
from benchmarks.keyed_latency.peers.serving import Asked
from benchmarks.keyed_latency.program import percentiles_of
from benchmarks.nexmark.peers.turns import PeerFailedError

MEDIANS: Final = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Number of turns, and what is asked of each. `before_turns` is called when all engines are warm."""

    asked: Asked
    turns: int
    before_turns: Callable[[], None]
    advance: Callable[[str], None]


class Turns:
    """Runs all contenders in turns. `failed` says by contender why it has no figures."""

    def __init__(self, plan: Plan, contenders: Sequence[Contender]) -> None:
        self._plan = plan
        self._contenders = contenders
        self._programs: dict[str, EngineProgram] = {}
        self._found: dict[str, list[Figures]] = {}
        self.failed: dict[str, str] = {}

    def run(self, scratch: Path) -> Figures:
        """Return the figures of each contender that had all its turns."""
        engines = {contender.engine.name: contender.engine for contender in self._contenders}
        with ExitStack() as stack:
            for name, engine in engines.items():
                program = EngineProgram(engine, scratch / name)
                self._programs[name] = stack.enter_context(program)
            self._warm_up()
            self._plan.before_turns()
            for _ in range(self._plan.turns):
                for contender in self._contenders:
                    if contender.name not in self.failed:
                        self._turn(contender)
        return {
            contender.name: summary(self._found[contender.name])
            for contender in self._contenders
            if contender.name not in self.failed
        }

    def _warm_up(self) -> None:
        """Each engine once, as the first of its contenders is set: what starts and compiles is not to be measured."""
        for name, program in self._programs.items():
            own = [contender for contender in self._contenders if contender.engine.name == name]
            self._plan.advance(f"{name} starts")
            try:
                program.await_ready()
                program.ask(self._asked_of(own[0]))
            except PeerFailedError as error:
                self.failed |= {contender.name: str(error) for contender in own}

    def _turn(self, contender: Contender) -> None:
        self._plan.advance(contender.title)
        try:
            with OthersShare() as others:
                latencies = self._programs[contender.engine.name].ask(self._asked_of(contender))
        except PeerFailedError as error:
            self.failed[contender.name] = str(error)
            return
        figures = {**percentiles_of(latencies), "others_percent": others.percent}
        self._found.setdefault(contender.name, []).append(figures)

    def _asked_of(self, contender: Contender) -> Asked:
        return replace(
            self._plan.asked,
            buffer_timeout_ms=contender.buffer_timeout_ms,
            target_ms=contender.target_ms,
        )


def summary(turns: Sequence[Figures]) -> Figures:
    """Return the medians of a contender's turns, and the turns."""
    medians = {name: round(statistics.median(turn[name] for turn in turns), 3) for name in MEDIANS}
    return {**medians, "turns": list(turns)}
