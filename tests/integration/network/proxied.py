"""An edge over real sockets with a fault proxy in its middle."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import start_thread
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.testing.fault_proxy.injector import FaultApplied
from headrace.testing.fault_proxy.proxy import Address, FaultProxy
from headrace.testing.fault_proxy.rules import parse_rule
from tests.integration.network.conftest import Starter

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = start_thread("fault proxy", self._loop.run_forever)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ProxiedEdge:
    """Producer "a", consumer "b", and a proxy by which b finds a."""

    def __init__(
        self,
        start: Starter,
        thread: LoopThread,
        rules: tuple[str, ...],
        seed: int,
        socket_directory: Path | None,
        there: TaskManagerLocation | None,
        options: dict[str, object],
    ) -> None:
        self.producer: CreditBasedShuffleEnvironment = start("a", socket_directory, **options)
        self.consumer: CreditBasedShuffleEnvironment = start("b", **options)
        there = there or self.producer.start()
        self.consumer.start()
        self.faults: list[str] = []
        self.errors: list[str] = []
        self._thread = thread
        if socket_directory is None:
            target, listen = Address(there.host, there.data_port), Address("127.0.0.1", 0)
        else:
            target = Address(path=there.unix_socket_path)
            listen = Address(path=str(socket_directory / "proxy.sock"))
        parsed = [parse_rule(rule) for rule in rules]
        self.proxy = FaultProxy(
            target, parsed, seed, on_fault=self._note, on_error=self.errors.append
        )
        bound = thread.run(self.proxy.listen(listen))
        self.location: TaskManagerLocation = msgspec.structs.replace(
            there, host=bound.host, data_port=bound.port, unix_socket_path=bound.path
        )

    def close_proxy(self) -> None:
        """Cut what is open."""
        self._thread.run(self.proxy.close())

    def _note(self, number: int, fault: FaultApplied) -> None:
        self.faults.append(f"{fault.rule.word} {fault.frame_text}")


MakeEdge = Callable[..., ProxiedEdge]


@pytest.fixture
def proxied(start: Starter) -> Iterator[MakeEdge]:
    """Makes edges with the given rules, and with checksums unless told otherwise.

    The proxies have a loop of their own, which ends before the environments do.
    """
    thread = LoopThread()
    edges: list[ProxiedEdge] = []

    def make(
        *rules: str,
        seed: int = 0,
        socket_directory: Path | None = None,
        there: TaskManagerLocation | None = None,
        **options: object,
    ) -> ProxiedEdge:
        options.setdefault("headrace_network_checksum", True)
        edges.append(ProxiedEdge(start, thread, rules, seed, socket_directory, there, options))
        return edges[-1]

    yield make
    for edge in edges:
        edge.close_proxy()
    thread.stop()
