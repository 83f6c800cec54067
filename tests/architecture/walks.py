"""The walks of docs/journey.md: tables whose rows name a file, a function in it, and what the function does.

A walk has a heading, a sentence that counts its files, steps and forwards, and the table. A forward is a step that does
nothing but call the next one; `→` marks it.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.architecture.floor_plan import PACKAGE, ROOT

JOURNEY: Final = ROOT / "docs" / "journey.md"
_ROW: Final = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \| (→ )?(.+) \|$", re.MULTILINE)
_COUNTED: Final = re.compile(r"^A (\w+) passes .* the next one\.$", re.MULTILINE)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Step:
    """A row of a walk. `function` is a function of the file, or `Class.method`."""

    file: str
    function: str
    is_marked: bool


@dataclass(frozen=True)
class Walk:
    """`sentence` is what the page says of its length."""

    name: str
    sentence: str
    steps: tuple[Step, ...]

    def wrong(self) -> list[str]:
        """Return a line for each step that is not as the page has it, then one for a wrong count."""
        found = [self._wrong(step) for step in self.steps]
        if not any(found) and self.sentence != self.counted():
            found.append(f"the page says '{self.sentence}'; it is '{self.counted()}'")
        return [f"the walk of a {self.name}: {text}" for text in found if text]

    def counted(self) -> str:
        """Return the sentence that counts the files, steps and forwards."""
        file_count = len({step.file for step in self.steps})
        return (
            f"A {self.name} passes {file_count} files in {len(self.steps)} steps; "
            f"{sum(step.is_marked for step in self.steps)} of the steps, marked →, only call the next one."
        )

    def _wrong(self, step: Step) -> str:
        if not (PACKAGE / step.file).is_file():
            return f"{step.file} is not there: name the file that has {step.function} now, or take the step out"
        function = _functions(step.file).get(step.function)
        if function is None:
            return f"{step.file} has no {step.function}: name what took its place, or take the step out"
        if is_forward(function) != step.is_marked:
            what = "does more than call another one: take its → away"
            return f"{step.function} {what if step.is_marked else 'only calls another one: mark it with →'}"
        return ""


def walks() -> list[Walk]:
    """The walks of the page, in its order."""
    text = JOURNEY.read_text(encoding="utf-8")
    begins = list(_COUNTED.finditer(text))
    ends = [each.start() for each in begins[1:]] + [len(text)]
    return [
        Walk(begin[1], begin[0], tuple(_steps(text[begin.end() : end])))
        for begin, end in zip(begins, ends, strict=True)
    ]


def _steps(text: str) -> list[Step]:
    return [Step(file, name, bool(mark)) for file, name, mark, _ in _ROW.findall(text)]


def is_forward(function: _Function) -> bool:
    """Whether a function does nothing but call another one, with what it was given."""
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    if len(body) > 1 and ast.unparse(body[-1]) == "return Acknowledge()":
        body = body[:-1]
    if len(body) != 1 or not isinstance(body[0], ast.Expr | ast.Return):
        return False
    value = body[0].value
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and not any(map(_computes, call.args))


def _computes(argument: ast.expr) -> bool:
    """Whether an argument is the result of a call of its own, other than that of a class."""
    if not isinstance(argument, ast.Call):
        return False
    return not ast.unparse(argument.func).rpartition(".")[2][0].isupper()


@cache
def _functions(file: str) -> dict[str, _Function]:
    """Return the functions of a file, and the methods of its classes as `Class.method`."""
    found: dict[str, _Function] = {}
    for node in ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body:
        if isinstance(node, _Function):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}": each
                for each in node.body
                if isinstance(each, _Function)
            }
    return found
