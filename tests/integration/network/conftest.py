"""Environments over real sockets, and the proof that nothing is left when they are closed."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.tls import TlsIdentity, generate_identity
from headrace.network.environment import CreditBasedShuffleEnvironment
from tests.unit.network.exchange import environment

Starter = Callable[..., CreditBasedShuffleEnvironment]


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    """Wait for what another thread is about to do."""
    changed = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        changed.wait(0.002)


@pytest.fixture(scope="session")
def identity() -> TlsIdentity:
    """What the processes of one cluster share."""
    return generate_identity(time.time_ns() // 1_000_000)


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts environments and closes them; every segment, partition and thread has to be back afterwards."""
    threads_before = set(threading.enumerate())
    environments: list[CreditBasedShuffleEnvironment] = []

    def start_environment(
        name: str, socket_directory: Path | None = None, **options: Any
    ) -> CreditBasedShuffleEnvironment:
        started = environment(name, socket_directory, **options)
        environments.append(started)
        return started

    yield start_environment
    for started in environments:
        started.close()
    # Batches in the frames of caught errors are garbage, but in cycles.
    gc.collect()
    for started in environments:
        pool = started.buffer_pool
        assert pool.count_idle_pages() == pool.total_pages, f"{started.name} keeps segments"
        assert started.partitions.partition_count == 0, f"{started.name} keeps partitions"
    assert set(threading.enumerate()) <= threads_before
