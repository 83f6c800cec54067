"""Asks on their way to other processes: who waits for which call id, and over which connection."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from headrace.rpc.codec import Answer, Response
from headrace.rpc.error_codec import decode_error
from headrace.rpc.errors import RecipientUnreachableError


@dataclass(frozen=True, eq=False)
class _Ask:
    future: asyncio.Future[Any]
    route: Hashable
    target: str
    method: str


class OutstandingAsks:
    """Call ids are never reused, so a late or doubled answer finds nobody and is dropped."""

    def __init__(self) -> None:
        self._asks: dict[int, _Ask] = {}
        self._last_call_id = 0

    def __len__(self) -> int:
        return len(self._asks)

    def open(self, future: asyncio.Future[Any], route: Hashable, target: str, method: str) -> int:
        """Enter an ask and return its call id, > 0."""
        self._last_call_id += 1
        self._asks[self._last_call_id] = _Ask(future, route, target, method)
        return self._last_call_id

    def forget(self, call_id: int) -> None:
        """Nobody waits for it any more."""
        self._asks.pop(call_id, None)

    def complete(self, response: Response) -> None:
        """Hand a response to whoever waits for it."""
        ask = self._asks.pop(response.call_id, None)
        if ask is None or ask.future.done():
            return
        if isinstance(response, Answer):
            ask.future.set_result(response.value)
        else:
            ask.future.set_exception(decode_error(response.failure, ask.target))

    def fail(self, call_id: int, error: Exception) -> None:
        """One ask failed here, before it was sent."""
        ask = self._asks.pop(call_id, None)
        if ask is not None and not ask.future.done():
            ask.future.set_exception(error)

    def fail_route(self, route: Hashable, reason: str, cause: BaseException | None = None) -> None:
        """The connection is gone: everybody who waits for an answer over it hears so now."""
        for call_id, ask in tuple(self._asks.items()):
            if ask.route == route:
                self._break_off(call_id, ask, reason, cause)

    def fail_all(self, reason: str) -> None:
        """The process stops: nobody will hear an answer."""
        for call_id, ask in tuple(self._asks.items()):
            self._break_off(call_id, ask, reason, None)

    def _break_off(self, call_id: int, ask: _Ask, reason: str, cause: BaseException | None) -> None:
        del self._asks[call_id]
        if not ask.future.done():
            error = RecipientUnreachableError(ask.target, ask.method, reason)
            error.__cause__ = cause
            ask.future.set_exception(error)
