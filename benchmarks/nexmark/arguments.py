"""What the programs here are told on the command line: how many events and turns, of which queries."""

import argparse
from collections.abc import Iterable

from benchmarks.nexmark.events import CYCLE
from benchmarks.nexmark.queries import QUERIES


def turns_argument(text: str) -> int:
    """Return how many turns an argument asks for; argparse.ArgumentTypeError below 1."""
    return _at_least(1, text)


def events_argument(text: str) -> int:
    """Return how many events an argument asks for; argparse.ArgumentTypeError below one cycle of all kinds."""
    return _at_least(CYCLE, text)


def refuse_unknown(parser: argparse.ArgumentParser, queries: Iterable[str]) -> None:
    """End the program with the names of those queries that there are not."""
    unknown = sorted(set(queries) - set(QUERIES))
    if unknown:
        parser.error(f"no query {' '.join(unknown)}; there are {' '.join(QUERIES)}")


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"at least {least}, not {text!r}")
    return int(text)
