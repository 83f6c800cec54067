"""In the exchange an error that is kept is raised as a copy (`network.errors.copy_of`).

Its own traceback would keep the frames of all who have caught it, and the segments that these refer to.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.architecture.floor_plan import PACKAGE

ROOMS: Final = ("network", "shuffle_service")
ALLOWED: Final = {
    "network/stored/chunk_writer.py": "of any class: what a write raised, which ends the partition",
    "network/transport/socket_transport.py": "a local variable's, at the end of the transport",
}
"""Files that raise what they keep, with the reason."""


def kept_errors_that_are_raised(text: str) -> Iterator[str]:
    """What a module raises that is neither made there nor just caught."""
    nodes = list(ast.walk(ast.parse(text)))
    caught = {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
    for node in nodes:
        match node:
            case ast.Raise(exc=ast.Name(id=name)) if not name[0].isupper() and name not in caught:
                yield name
            case ast.Raise(exc=ast.Attribute() | ast.Subscript() as kept):
                yield ast.unparse(kept)
            case _:
                pass


def test_errors_that_are_kept_are_raised_as_copies() -> None:
    found = {
        str(file.relative_to(PACKAGE))
        for room in ROOMS
        for file in (PACKAGE / room).rglob("*.py")
        if list(kept_errors_that_are_raised(file.read_text(encoding="utf-8")))
    }
    assert found == set(ALLOWED)


def test_what_is_kept_is_told_from_what_is_made_or_caught() -> None:
    text = (
        "def f(self):\n    if self.a:\n        raise self._error\n"
        "    failure = self.failures.get(1)\n    raise failure\n"
        "    raise self.errors[0]\n    raise ValueError\n    raise ValueError(1)\n"
        "    raise copy_of(self._error)\n"
        "    try:\n        pass\n    except OSError as error:\n        raise error\n"
    )
    assert set(kept_errors_that_are_raised(text)) == {
        "self._error",
        "failure",
        "self.errors[0]",
    }
