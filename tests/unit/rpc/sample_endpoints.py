"""A gateway with every kind of method, and an endpoint that records what it was asked."""

import asyncio
from typing import Protocol

import msgspec

from headrace.core.errors import NoResourceAvailableError
from headrace.core.ids import FencingToken, JobId
from headrace.rpc.endpoint import FencedRpcEndpoint, RpcEndpoint
from headrace.rpc.service import RpcService

TOKEN = FencingToken(b"leader session 1")
OTHER_TOKEN = FencingToken(b"leader session 2")


class Entry(msgspec.Struct, frozen=True):
    job_id: JobId
    words: tuple[str, ...] = ()


class Added(msgspec.Struct, frozen=True, tag="added"):
    entry: Entry


class Declined(msgspec.Struct, frozen=True, tag="declined"):
    reason: str


class LedgerGateway(Protocol):
    async def add(self, entry: Entry, comment: str = "none") -> Added | Declined:
        """An ask of an async handler, with a default and a union."""
        ...

    async def count(self) -> int:
        """An ask of a sync handler."""
        ...

    async def echo(self, data: bytes) -> bytes:
        """Returns what it is given."""
        ...

    async def hold(self, name: str) -> str:
        """Answers with the name once the endpoint lets it go."""
        ...

    async def fail(self, kind: str) -> None:
        """Raises."""
        ...

    def note(self, text: str) -> None:
        """A tell."""
        ...


class UnofferedGateway(Protocol):
    async def anything(self) -> int: ...


class NewerLedgerGateway(Protocol):
    """What a caller of a newer version believes LedgerGateway to be."""

    async def subtract(self, entry: Entry) -> int: ...


NewerLedgerGateway.__module__ = LedgerGateway.__module__
NewerLedgerGateway.__qualname__ = LedgerGateway.__qualname__

ENTRY = Entry(JobId(b"a job of 16 byte"), ("one", "two"))


class _Records:
    """What both ledgers do."""

    def begin(self) -> None:
        self.notes: list[str] = []
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.entries: list[Entry] = []
        self._gates: dict[str, asyncio.Event] = {}

    def release(self, name: str) -> None:
        """Let the call of `hold` with this name go, whether it has come or is yet to come."""
        self._gate(name).set()

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def add(self, entry: Entry, comment: str = "none") -> Added | Declined:
        self.entries.append(entry)
        return Declined(comment) if comment == "decline" else Added(entry)

    def count(self) -> int:
        return len(self.notes)

    async def echo(self, data: bytes) -> bytes:
        return data

    async def hold(self, name: str) -> str:
        self.begun.append(name)
        await self._gate(name).wait()
        self.ended.append(name)
        return name

    def fail(self, kind: str) -> None:
        match kind:
            case "known":
                raise NoResourceAvailableError(3, 500, "nothing is free")
            case "chained":
                try:
                    {}["missing"]
                except KeyError as error:
                    raise NoResourceAvailableError(1, 2, "looked in vain") from error
            case _:
                raise LookupError(f"no such thing: {kind}")

    def note(self, text: str) -> None:
        if text == "fail":
            raise LookupError("a failing tell")
        self.notes.append(text)


class Ledger(_Records, RpcEndpoint):
    gateway_types = (LedgerGateway,)

    def __init__(self, service: RpcService, name: str = "ledger") -> None:
        self.begin()
        super().__init__(service, name)


class Slow(Ledger):
    """Starts and stops only when it is let go."""

    def __init__(self, service: RpcService, name: str = "ledger") -> None:
        self.may_start, self.may_stop = asyncio.Event(), asyncio.Event()
        super().__init__(service, name)

    async def on_start(self) -> None:
        await self.may_start.wait()
        self.notes.append("started")

    async def on_stop(self) -> None:
        self.notes.append("stopping")
        await self.may_stop.wait()
        self.notes.append("stopped")


class Started(Slow):
    """Starts at once."""

    async def on_start(self) -> None:
        self.may_start.set()
        await super().on_start()


class FencedLedger(_Records, FencedRpcEndpoint[FencingToken]):
    gateway_types = (LedgerGateway,)

    def __init__(self, service: RpcService, name: str = "ledger") -> None:
        self.begin()
        super().__init__(service, name, TOKEN)
