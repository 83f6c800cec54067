"""Runs what a blob server or cache does at once."""

from typing import Any


async def run_at_once(name: str, body: Any) -> Any:
    return body()
