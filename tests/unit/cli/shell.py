"""Types of the fixture `shell`, in which commands run: their output, apart, and their exit code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    out: str
    err: str
    code: Any

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Shell = Callable[..., Outcome]
