"""The plan of a program, which is run up to its first `execute()` and no further."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from headrace.api.executors import (
    known_parallelism,
    set_active_executor,
    set_default_settings,
)
from headrace.cli.program_run import run_as_main
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.graph.execution_plan import plan_json
from headrace.graph.job_graph import JobGraph
from headrace.graph.stream_graph import StreamGraph

T = TypeVar("T")
OnPlanned = Callable[[StreamGraph, Settings], NoReturn]


class _PlanMade(BaseException):
    """Leaves the program at its `execute()`; no `except Exception` of a program holds it up."""


def planned_by(
    make: Callable[[StreamGraph, Settings], T], run: Callable[[OnPlanned], object]
) -> T | None:
    """Run a program up to its first `execute()`, and return what `make` makes of its graph; None without one."""
    made: list[T] = []

    def leave(graph: StreamGraph, settings: Settings) -> NoReturn:
        made.append(make(graph, settings))
        raise _PlanMade

    with contextlib.suppress(_PlanMade):
        run(leave)
    # A program may have caught it, with all that there is.
    return made[0] if made else None


def plan_of_program(
    program: Path, arguments: tuple[str, ...], settings: dict[str, str], entry_class: str | None
) -> str:
    """Run a program up to its first `execute()` and return its plan. ProgramError where it never comes to one."""
    set_default_settings(settings)
    parallelism = known_parallelism(Settings(settings)) or os.cpu_count() or 1

    def run(on_planned: OnPlanned) -> None:
        set_active_executor(_PlanningExecutor(parallelism), on_planned=on_planned)
        run_as_main(program, arguments, entry_class)

    try:
        plan = planned_by(plan_json, run)
    finally:
        set_active_executor(None)
        set_default_settings({})
    if plan is None:
        raise ProgramError("the program ended without a job: it never called env.execute()")
    return plan


class _PlanningExecutor:
    """An executor that runs nothing."""

    name = "plan"

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism

    def submit(self, job_graph: JobGraph) -> NoReturn:
        raise ProgramError("'headrace info' runs no job")

    def default_parallelism(self) -> int:
        return self._parallelism

    def known_parallelism(self) -> int | None:
        return self._parallelism

    def list_data_sets(self) -> tuple[()]:
        return ()

    def release_data_set(self, data_set: object) -> None:
        """Nothing was left."""

    def close(self) -> None:
        """Nothing was started."""
