"""Runs a measurement in a process of its own: memory that one before it left behind is not counted for it."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_fresh_process(measure: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Return what a function of a module's top level returns; what it raises is raised."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments, **named).result()
