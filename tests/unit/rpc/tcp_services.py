"""RpcServices on real sockets, for tests."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.rpc.tcp import TcpRpcService
from tests.unit.rpc.sample_endpoints import (
    Ledger,
    LedgerGateway,
)

SECRET = b"s" * 32

Run = Callable[[Coroutine[Any, Any, None]], None]


def make_service(
    settings: dict[str, str] | None = None, *, secret: bytes = SECRET, **options: Any
) -> TcpRpcService:
    return TcpRpcService(
        Settings({"pekko.framesize": "256kb", **(settings or {})}),
        bind_host="127.0.0.1",
        secret=secret,
        clock=SystemClock(),
        random=Random(),
        **options,
    )


@contextlib.asynccontextmanager
async def started(*services: TcpRpcService) -> AsyncIterator[None]:
    for service in services:
        await service.start()
    try:
        yield
    finally:
        for service in reversed(services):
            await service.stop()


async def ledger_and_gateway(
    callee: TcpRpcService, caller: TcpRpcService
) -> tuple[Ledger, LedgerGateway]:
    ledger = Ledger(callee)
    ledger.start()
    return ledger, await caller.connect(ledger.address, LedgerGateway)
