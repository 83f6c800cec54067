"""The Python blocks of the documents, each with what the document shows as its outcome."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.architecture.floor_plan import ROOT

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class PythonBlock:
    """`outcome` is the next fenced block without a language, or empty."""

    document: str
    line: int
    code: str
    outcome: str

    @property
    def is_program(self) -> bool:
        """Whether it is said to run as it stands; else it is a fragment of a program."""
        return "env.execute(" in self.code


def python_blocks() -> Iterator[PythonBlock]:
    """Every Python block of README.md and of what lies below docs/, in order."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = file.read_text(encoding="utf-8")
        blocks = list(_FENCED.finditer(text))
        for block, following in zip(blocks, [*blocks, None][1:], strict=True):
            if block.group(1) == "python":
                outcome = following.group(2) if following and not following.group(1) else ""
                line = text.count("\n", 0, block.start()) + 1
                name = file.relative_to(ROOT).as_posix()
                yield PythonBlock(name, line, block.group(2), outcome)
