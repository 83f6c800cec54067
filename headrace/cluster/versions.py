"""Versions of the software that driver and workers must share, because functions travel between them as pickles."""

import functools
import platform
from collections.abc import Mapping
from importlib.metadata import version

import msgspec
import pyarrow as pa

from headrace import __version__
from headrace.core.errors import VersionMismatchError


def software_versions() -> dict[str, str]:
    """Versions of this process, by name; Python's with its micro number."""
    return {
        "python": platform.python_version(),
        "headrace": __version__,
        "pyarrow": pa.__version__,
        "cloudpickle": _cloudpickle_version(),
        "msgspec": msgspec.__version__,
    }


@functools.cache
def _cloudpickle_version() -> str:
    # It looks through the whole path: once for all processes that are forked from this one.
    return version("cloudpickle")


def find_mismatch(
    driver: Mapping[str, str], worker: Mapping[str, str], worker_name: str, interpreter: str = ""
) -> VersionMismatchError | None:
    """Return the first difference, as the error that a waiting job shall end with; None where there is none."""
    for name, wanted in driver.items():
        found = worker.get(name, "nothing")
        if found != wanted:
            return VersionMismatchError(
                f"version of {name}", wanted, found, worker_name, interpreter
            )
    return None
