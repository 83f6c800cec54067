"""How long does a record take from its source through one keyed shuffle to the sink, on two cores? How fast can it go?

Latency: each record carries the nanosecond it was due at its source, 20,000 a second; the stopwatch behind the keyed
count subtracts that from its own reading of the same machine's clock. Exactly-once checkpoints every 500 ms. The first
seconds are left out. Throughput: the same job as fast as it goes, its source giving as many records at once as come in
a millisecond at that rate: what a batch costs then shows. `timeouts` asks both for each buffer timeout; `governed`
sets a latency target instead and asks whether it is held, at several rates, and how fast it goes. `--peers` asks the
first question of other engines instead, in turns with Headrace, which always takes part: who that is, how they are set
and what they guarantee stands in `peers/registry.py`. `--pause` waits for Enter when all of them are warm.

    python -m benchmarks.keyed_latency [--sections timeouts governed] [--rate 20000] [--seconds 10]
        [--buffer-timeouts 0 1 5 10 100 -1] [--checkpoint-interval 500] [--targets 5 20 50] [--rates 2000 20000 60000]
    python -m benchmarks.keyed_latency --peers flink bytewax [--turns 2] [--pause] [--rate 20000] [--seconds 10]

About six minutes. Then: python -m benchmarks.keyed_latency.report
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.keyed_latency.peers.registry import ENGINES, HEADRACE, contenders_of, packages_of
from benchmarks.keyed_latency.peers.serving import Asked
from benchmarks.keyed_latency.peers.turns import Plan, Turns
from benchmarks.keyed_latency.program import (
    Load,
    latency_figures,
    records_per_second,
    run_job,
    warm_laps,
)
from benchmarks.record import record_result

SECTIONS = ("timeouts", "governed")


class Questions:
    """Asks one after another of the same kind of job, and keeps each answer at once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._load_before = round(os.getloadavg()[0], 2)

    def timeouts(self) -> None:
        """Latency and throughput for each buffer timeout."""
        for timeout_ms in self._arguments.buffer_timeouts:
            figures = self._ask(self._arguments.rate, timeout_ms, None)
            figures["max_records_per_second"] = self._highest_rate(timeout_ms, None)
            self._keep("timeouts", {"buffer_timeout_ms": timeout_ms}, figures)

    def governed(self) -> None:
        """Latency for each target and rate; throughput for each target."""
        for target_ms in self._arguments.targets:
            highest = self._highest_rate(None, target_ms)
            for rate in self._arguments.rates:
                figures = self._ask(rate, None, target_ms)
                figures["max_records_per_second"] = highest
                self._keep("governed", {"target_ms": target_ms}, figures)

    def peers(self) -> bool:
        """Latency of several engines under one load, in turns; whether each of them gave it."""
        arguments = self._arguments
        contenders = contenders_of([HEADRACE, *arguments.peers])
        versions = sorted({name for each in contenders for name in packages_of(each.engine)})
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            asked = Asked(
                rate=arguments.rate,
                seconds=arguments.seconds + arguments.warm_up_seconds,
                warm_up_seconds=arguments.warm_up_seconds,
                keys=arguments.keys,
                parallelism=arguments.parallelism,
                checkpoint_interval_ms=arguments.checkpoint_interval,
                buffer_timeout_ms=None,
                target_ms=None,
                out=Path(directory, "latencies"),
            )
            turns = Turns(Plan(asked, arguments.turns, self._before_turns, say), contenders)
            found = turns.run(Path(directory))
        figures: dict[str, Any] = {"turns": arguments.turns, "seconds": arguments.seconds}
        figures |= {"keys": arguments.keys, "packages": versions}
        figures |= {"contenders": found, "failed": turns.failed}
        self._keep("peers", {"rate_per_second": arguments.rate}, figures)
        return not turns.failed

    def _before_turns(self) -> None:
        if self._arguments.pause:
            input("all engines are warm; Enter begins the turns\n")
            self._load_before = round(os.getloadavg()[0], 2)

    def _ask(self, rate: int, timeout_ms: int | None, target_ms: int | None) -> dict[str, Any]:
        arguments = self._arguments
        seconds = arguments.seconds + arguments.warm_up_seconds
        load = Load(rate, seconds, arguments.parallelism, arguments.keys)
        laps = warm_laps(self._run(load, timeout_ms, target_ms), arguments.warm_up_seconds)
        return {"rate_per_second": rate, **latency_figures(laps)}

    def _highest_rate(self, timeout_ms: int | None, target_ms: int | None) -> int:
        arguments = self._arguments
        seconds = arguments.throughput_seconds + arguments.warm_up_seconds
        load = Load(0, seconds, arguments.parallelism, arguments.keys, arguments.rate)
        laps = warm_laps(self._run(load, timeout_ms, target_ms), arguments.warm_up_seconds)
        return round(records_per_second(laps))

    def _run(self, load: Load, timeout_ms: int | None, target_ms: int | None) -> Any:
        with tempfile.TemporaryDirectory() as directory:
            settings = {"execution.checkpointing.dir": directory}
            if self._arguments.checkpoint_interval:
                interval = f"{self._arguments.checkpoint_interval} ms"
                settings["execution.checkpointing.interval"] = interval
            if target_ms is not None:
                settings["headrace.latency.target"] = f"{target_ms} ms"
            return run_job("keyed latency", load, settings, timeout_ms)

    def _keep(self, section: str, what: dict[str, Any], figures: dict[str, Any]) -> None:
        circumstances = {
            "checkpoint_interval_ms": self._arguments.checkpoint_interval,
            "parallelism": self._arguments.parallelism,
            "load_average_before": self._load_before,
        }
        record_result("keyed_latency", {"section": section, **what, **figures, **circumstances})


def say(what: str) -> None:
    """Tell what is done now."""
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.keyed_latency", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    others = sorted(set(ENGINES) - {HEADRACE})
    parser.add_argument("--peers", nargs="+", choices=others, help="beside Headrace")
    parser.add_argument("--turns", type=int, default=2, help="of each way of setting an engine")
    parser.add_argument("--pause", action="store_true", help="wait for Enter before the turns")
    parser.add_argument("--rate", type=int, default=20_000, help="records per second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--throughput-seconds", type=float, default=6)
    parser.add_argument("--warm-up-seconds", type=float, default=3)
    parser.add_argument(
        "--buffer-timeouts", type=int, nargs="+", default=[0, 1, 5, 10, 100, -1], help="ms"
    )
    parser.add_argument("--checkpoint-interval", type=int, default=500, help="ms; 0: none")
    parser.add_argument("--targets", type=int, nargs="+", default=[5, 20, 50], help="ms")
    parser.add_argument("--rates", type=int, nargs="+", default=[2_000, 20_000, 60_000])
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1000)
    questions = Questions(arguments := parser.parse_args())
    if arguments.peers:
        sys.exit(0 if questions.peers() else 1)
    for section in arguments.sections:
        getattr(questions, section)()


if __name__ == "__main__":
    main()
