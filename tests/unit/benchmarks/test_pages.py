"""The pages in docs are what their reports make of the figures that are kept beside them."""

import json
from collections.abc import Callable, Sequence

import pytest

from benchmarks import python_report
from benchmarks.growth import report as growth
from benchmarks.keyed_latency import report as keyed_latency
from benchmarks.network import report as network
from benchmarks.nexmark import report as nexmark
from benchmarks.nexmark.checks import newest_checks
from benchmarks.nexmark.flames import profiles
from benchmarks.page import DOCS
from benchmarks.record import RESULTS
from benchmarks.state import report as state

Drawn = Sequence[str]


def network_page(drawn: Drawn) -> str:
    sections = network.prepare(network.read_lines(RESULTS / "network.jsonl"), "unix")
    return network.write_page(sections, drawn, network.newest_of_others())


def growth_page(drawn: Drawn) -> str:
    lines = (RESULTS / "growth.jsonl").read_text().splitlines()
    return growth.write_page([json.loads(line) for line in lines], drawn)


PAGES: dict[str, Callable[[Drawn], str]] = {
    "growth": growth_page,
    "latency": lambda drawn: keyed_latency.write_page(
        keyed_latency.read_cells(RESULTS / "keyed_latency.jsonl"), drawn
    ),
    "network": network_page,
    "nexmark": lambda drawn: nexmark.write_page(
        nexmark.newest(RESULTS),
        drawn,
        profiles(RESULTS / "flames"),
        nexmark.newest_state(RESULTS),
        newest_checks(RESULTS),
    ),
    "python": lambda drawn: python_report.write_page(*python_report.newest(RESULTS), drawn),
    "state": lambda drawn: state.write_page(state.newest(RESULTS), drawn),
}


@pytest.mark.parametrize("name", [name for name in PAGES if (DOCS / f"{name}_report.md").exists()])
def test_a_page_says_what_was_measured_last(name: str) -> None:
    drawn = [picture.stem for picture in (DOCS / "pictures").glob("*.svg")]
    assert (DOCS / f"{name}_report.md").read_text() == PAGES[name](drawn)
