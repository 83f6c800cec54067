"""Versions of the software that driver and workers must share, because functions are exchanged as pickles."""

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import version

import msgspec
import pyarrow as pa

from headrace import __version__
from headrace.core.errors import VersionMismatchError


def software_versions() -> dict[str, str]:
    """Return the versions of this process by name; Python's includes its micro number."""
    return {
        "python": platform.python_version(),
        "headrace": __version__,
        "pyarrow": pa.__version__,
        "cloudpickle": _cloudpickle_version(),
        "msgspec": msgspec.__version__,
    }


@functools.cache
def _cloudpickle_version() -> str:
    # It searches the whole import path: once for all processes that are forked from this one.
    return version("cloudpickle")


def find_mismatch(
    driver: Mapping[str, str], worker: Mapping[str, str], worker_name: str, interpreter: str = ""
) -> VersionMismatchError | None:
    """Return the first difference, as the error with which a waiting job must end; None if there is none."""
    for name, wanted in driver.items():
        found = worker.get(name, "nothing")
        if found != wanted:
            return VersionMismatchError(
                f"version of {name}", wanted, found, worker_name, interpreter
            )
    return None
