"""The part of the page that sets other engines beside Headrace: one run, all in turns."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.keyed_latency.peers.registry import CONTENDERS
from benchmarks.page import picture, table

OTHERS_PERCENT_BUSY = 10
HEADS = ("", "p50, ms", "p99, ms", "p99.9, ms", "p99 of the turns, ms", "others, %", "guarantee")
PEERS = """\
## Beside other engines, at {rate:,} records per second

{picture}

{measured}
One run, in which all took turns on one machine ({turns} each, of {seconds:g} s behind a warm-up), with two workers
each: records of {keys} keys, each stamped with the moment at which it was due by a source that looks at the clock every
millisecond; a shuffle by key; a count in keyed state; a stopwatch at the sink. Latency is from the stamp to there, of
all records. Figures are medians of the turns; dots in the picture are single turns. *Others* is what else took of both
processors meanwhile, a hypervisor among it, on average: where it is not small, and above all where it is not the same,
a row says more about the machine than about the engine.{busy}

{table}

Headrace's workers are two Python processes that Spark hosts, bytewax's two Python processes as well. Flink's are two
TaskManagers with a slot each in one JVM, which talk over TCP; its job is written in Java. Versions beside Headrace:
{packages}. Each engine is started and has carried the load once before. What is said of a
guarantee is of state; no sink is part of this job.
{failed}"""
BUSY = " **Here it was up to {percent:.0f} %: absolute figures mean little.**"


def title_of(name: str) -> str:
    """Return what a contender is called on the page; its name where it takes part no longer."""
    return next((each.title for each in CONTENDERS if each.name == name), name)


def peers_text(cell: Mapping[str, Any], drawn: Sequence[str]) -> str:
    """Return the section of a run."""
    busiest = max(
        (
            turn["others_percent"] or 0
            for one in cell["contenders"].values()
            for turn in one["turns"]
        ),
        default=0,
    )
    failed = [f"- {title_of(name)} failed: {why}" for name, why in cell["failed"].items()]
    return PEERS.format(
        rate=cell["rate_per_second"],
        picture=picture("latency_peers", drawn),
        measured=f"Measured {cell['date']} on {cell['machine']}.",
        turns=cell["turns"],
        seconds=cell["seconds"],
        keys=f"{cell['keys']:,}",
        busy=BUSY.format(percent=busiest) if busiest > OTHERS_PERCENT_BUSY else "",
        table=table(HEADS, rows_of(cell), numbers=True),
        packages=", ".join(cell["packages"]),
        failed="".join(f"\n{line}" for line in failed) + ("\n" if failed else ""),
    )


def rows_of(cell: Mapping[str, Any]) -> list[list[object]]:
    """A row for each contender that had all its turns."""
    guarantees = {each.name: each.guarantee for each in CONTENDERS}
    rows: list[list[object]] = []
    for name, figures in cell["contenders"].items():
        turns = figures["turns"]
        others = [turn["others_percent"] for turn in turns if turn["others_percent"] is not None]
        rows.append(
            [
                title_of(name),
                *(f"{figures[key]:.1f}" for key in ("p50_ms", "p99_ms", "p99.9_ms")),
                ", ".join(f"{turn['p99_ms']:.1f}" for turn in turns),
                f"{sum(others) / len(others):.0f}" if others else "–",
                guarantees.get(name, "–").format(interval=cell["checkpoint_interval_ms"]),
            ]
        )
    return rows
