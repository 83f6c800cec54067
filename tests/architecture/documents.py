"""The Python blocks of the documents, each with what the document shows as its outcome."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.architecture.floor_plan import ROOT

GUIDES: Final = ("docs/getting_started/", "docs/how_to/")
"""Pages whose blocks run one after the other, as a reader types them in."""
_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class PythonBlock:
    """`outcome` is the next fenced block without a language, or empty."""

    document: str
    line: int
    code: str
    outcome: str

    @property
    def is_in_a_guide(self) -> bool:
        """Whether it stands on a page whose blocks run one after the other."""
        return self.document.startswith(GUIDES)

    @property
    def is_program(self) -> bool:
        """Whether it runs as it stands, on Spark; else it is a fragment of a program, or a part of a guide."""
        return ("spark_session(" if self.is_in_a_guide else "env.execute(") in self.code


def python_blocks() -> Iterator[PythonBlock]:
    """Every Python block of README.md, CONTRIBUTING.md and of what lies below docs/, in order."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for file in [*documents, *sorted((ROOT / "docs").rglob("*.md"))]:
        text = file.read_text(encoding="utf-8")
        blocks = list(_FENCED.finditer(text))
        for block, following in zip(blocks, [*blocks, None][1:], strict=True):
            if block.group(1) == "python":
                outcome = following.group(2) if following and not following.group(1) else ""
                line = text.count("\n", 0, block.start()) + 1
                name = file.relative_to(ROOT).as_posix()
                yield PythonBlock(name, line, block.group(2), outcome)
