"""Shuffle services in a directory."""

from pathlib import Path
from typing import Any

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom
from headrace.shuffle_service.service import ShuffleService


def new_service(directory: Path, seed: int, transport: Any = None) -> ShuffleService:
    return ShuffleService(
        Settings(),
        directory=directory,
        secret=b"s" * 32,
        bind_host="127.0.0.1",
        advertised_host="127.0.0.1",
        clock=ManualClock(),
        random=SeededRandom(seed),
        transport=transport,
    )
