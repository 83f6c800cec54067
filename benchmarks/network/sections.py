"""What is measured, in order: one entry per question, with how many steps it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.network.costs import CODECS, measure_compression, measure_tls, sample_columns
from benchmarks.network.credit import measure_credit
from benchmarks.network.disk import KINDS, measure_disk
from benchmarks.network.isolation import measure_debloating, measure_stalled
from benchmarks.network.matrix import Matrix
from benchmarks.network.mischief import HARMS, LOADS, measure_mischief

Advance = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What a run was asked for."""

    carrier: str
    matrix: Matrix
    repeats: int
    disk_directory: str | None
    disk_bytes: int


@dataclass(frozen=True)
class Section:
    """One question."""

    step_count: Callable[[Plan], int]
    measure: Callable[[Plan, Advance], dict[str, Any]]


SECTIONS = {
    "matrix": Section(
        lambda plan: plan.matrix.step_count,
        lambda plan, advance: plan.matrix.measure(plan.carrier, advance),
    ),
    "credit": Section(
        lambda plan: 2,
        lambda plan, advance: measure_credit(plan.carrier, 3 * plan.matrix.seconds, advance),
    ),
    "disk": Section(
        lambda plan: len(KINDS) * plan.repeats,
        lambda plan, advance: measure_disk(
            plan.disk_directory, plan.disk_bytes, plan.repeats, advance
        ),
    ),
    "tls": Section(
        lambda plan: plan.repeats,
        lambda plan, advance: measure_tls(plan.matrix.seconds, plan.repeats, advance),
    ),
    "compression": Section(
        lambda plan: len(CODECS) * len(sample_columns()),
        lambda plan, advance: measure_compression(advance),
    ),
    "stalled": Section(
        lambda plan: LOADS,
        lambda plan, advance: measure_stalled(plan.carrier, plan.repeats, advance),
    ),
    "debloating": Section(
        lambda plan: 2,
        lambda plan, advance: measure_debloating(plan.carrier, 8 * plan.matrix.seconds, advance),
    ),
    "mischief": Section(
        lambda plan: LOADS * len(HARMS),
        lambda plan, advance: measure_mischief(plan.carrier, plan.repeats, advance),
    ),
}
