"""Senders of each frame of the data plane, from the code: where a frame is built, and who asks for that."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import headrace
from headrace.network.wire import frames, framing

_ROOT: Final = Path(headrace.__file__).parent
_SENDING: Final = ("network", "shuffle_service")
_NOT_ASKING: Final = {"view", "successor"}
"""A view of a subpartition is told because of a frame, and a channel's successor what was asked of the one before."""
_ASKED: Final = {"ConsumerSession"}
"""Classes that send a frame only where somebody calls for it."""


def frame_senders() -> dict[str, str]:
    """Return what stands in the table for each frame. ValueError where nobody sends one: its id is to be reserved."""
    builders = _builders()
    senders: dict[str, str] = {}
    idle: set[str] = set()
    requested = _requested_names()
    for frame in framing.declared_frames():
        name = frame.__name__
        sending = {
            owner
            for owner, method in builders[name]
            if method.startswith("_") or owner not in _ASKED or method in requested
        }
        if not sending:
            idle.add(name)
        senders[name] = ", ".join(f"`{owner}`" for owner in sorted(sending))
    if idle:
        raise ValueError(f"nobody sends {sorted(idle)}")
    return senders


def _builders() -> dict[str, set[tuple[str, str]]]:
    """Class (or function) and method in which each frame is built, except to be read."""
    names = {frame.__name__ for frame in framing.declared_frames()}
    # Frames are declared as these are imported.
    assert {frames.Data.__name__, frames.PushData.__name__} <= names
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for folder in _SENDING:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            for owner, function, call in _calls(path):
                if isinstance(call.func, ast.Name) and call.func.id in names:
                    found[call.func.id].add((owner, function))
    return found


def _requested_names() -> set[str]:
    """Methods that some function calls which does not merely pass on a call of the same name."""
    found: set[str] = set()
    for path in sorted(_ROOT.rglob("*.py")):
        for _, function, call in _calls(path):
            if isinstance(call.func, ast.Attribute) and call.func.attr != function:
                receiver = ast.unparse(call.func.value).rpartition(".")[2]
                if receiver not in _NOT_ASKING:
                    found.add(call.func.attr)
    return found


def _calls(path: Path) -> Iterator[tuple[str, str, ast.Call]]:
    """Every call with the outermost class and function that it stands in; patterns of `match` are none."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef):
            functions = [each for each in statement.body if isinstance(each, ast.FunctionDef)]
            owner = statement.name
        elif isinstance(statement, ast.FunctionDef):
            functions, owner = [statement], statement.name
        else:
            continue
        for function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    yield owner, function.name, node
