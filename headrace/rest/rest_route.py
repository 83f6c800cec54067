"""RestRoute: one route of the REST API."""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from pydantic import TypeAdapter


@dataclass(frozen=True)
class RestRoute:
    """One route. `answer`: type of the body, None if the handler creates the whole response.

    `request`: type of the request's body, bytes if it is not JSON, None if there is none. `is_kept`: dashboards poll
    the route, so its answer is computed once per refresh interval, however many ask. `is_archived`: the archive of an
    ended job answers it as well. `is_message`: the route is only for clients that accept `application/msgpack`, and
    answers with a message of the gateways.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    answer: Any
    status: int = 200
    is_kept: bool = False
    is_archived: bool = False
    is_message: bool = False
    request: Any = None

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @functools.cached_property
    def query(self) -> tuple[str, ...]:
        """Return the names of the query parameters that the handler declares."""
        return tuple(field.alias for each in self._declared for field in each.query_params)

    @functools.cached_property
    def unread(self) -> tuple[str, ...]:
        """Return the names of the path parameters that the handler does not declare."""
        read = {field.alias for each in self._declared for field in each.path_params}
        return tuple(name for name in self.parameters if name not in read)

    @functools.cached_property
    def _declared(self) -> tuple[Dependant, ...]:
        return tuple(_flat(get_dependant(path=self.path, call=self.handler)))

    @functools.cached_property
    def _writer(self) -> TypeAdapter[Any]:
        assert self.answer is not None, f"{self.path} has no answer type"
        return TypeAdapter(self.answer)

    def written(self, found: Any) -> bytes:
        """Return the handler's result as JSON, or as a message."""
        if self.is_message:
            return msgspec.msgpack.encode(found)
        return self._writer.dump_json(found, by_alias=True)


def _flat(declared: Dependant) -> Iterator[Dependant]:
    yield declared
    for each in declared.dependencies:
        yield from _flat(each)
