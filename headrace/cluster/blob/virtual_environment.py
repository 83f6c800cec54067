"""Makes the virtual environment of a job's requirements, on top of the packages of an interpreter."""

import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from headrace.core.clock import SystemClock
from headrace.core.config import ConfigOption
from headrace.core.errors import ErrorDomain, HeadraceError

INSTALL_TIMEOUT: Final = ConfigOption(
    "headrace.python.requirements.timeout",
    timedelta,
    timedelta(minutes=10),
    "Time limit for the installation of a job's requirements on a host. The cluster's value is added to the time in "
    "which the job's TaskManagers must register, the job's value to the time for which it waits for slots.",
)
_MAKE: Final = """
import site, sys, sysconfig, venv
folder = sys.argv[1]
venv.create(folder, symlinks=True)
packages = sysconfig.get_path("purelib", "venv", {"base": folder})
places = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
with open(packages + "/packages_below.pth", "w") as file:
    file.writelines(f"import site; site.addsitedir({place!r})\\n" for place in places)
"""
"""Program that makes an environment. Packages of the base interpreter come after those of the environment."""
_GUARD: Final = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that began it is gone")
try:
    code = subprocess.call(sys.argv[2:])
except OSError as error:
    sys.exit(f"it does not start: {error}")
sys.exit(code if code >= 0 else 128 - code)
"""
"""Leader of a process group. The kernel signals it, and only it, when the process that started it ends."""
_OUTPUT_CHARS: Final = 4_000
_CLOCK: Final = SystemClock()


class RequirementsNotInstalledError(HeadraceError):
    """The packages of a job's requirements file could not be installed on a host.

    `output` is the end of pip's output.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, reason: str, output: str) -> None:
        said = output.strip()[-_OUTPUT_CHARS:]
        super().__init__(
            f"the packages of python.requirements could not be installed: {reason}; if the package registry is "
            "out of reach of the workers, ship the packages with the job: set_python_requirements(file, folder)"
            + (f"\n{said}" if said else "")
        )
        self.output = said


class PackageConflictError(HeadraceError):
    """A job's requirements need another version of a package than the one loaded in the process of its functions."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, package: str, wanted: str, loaded: str) -> None:
        super().__init__(
            f"python.requirements asks for {package} {wanted}, but this process has already loaded {package} {loaded}: "
            "run the job in STREAMING mode on Spark, where its TaskManagers start in an environment of their own, or "
            "have it run by an interpreter that has the packages (set_python_executable)"
        )
        self.package, self.wanted, self.loaded = package, wanted, loaded


class MissingInterpreterError(HeadraceError):
    """The archive of a job does not contain the file that `python.executable` names."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, archive: str, path: str) -> None:
        super().__init__(
            f"'{archive}' of the job has no file '{path}', which python.executable names: list the archive, and name "
            "the path of the interpreter in it"
        )
        self.archive, self.path = archive, path


def make_virtual_environment(
    interpreter: str, requirements: Path, packages: Path | None, folder: Path, timeout_s: float
) -> None:
    """Make an environment of `interpreter` in the new folder, and install the requirements into it.

    If `packages` is given, only its files are used. RequirementsNotInstalledError if that fails or exceeds `timeout_s`.
    """
    deadline_ms, timeout = _CLOCK.monotonic_ms() + timeout_s * 1000, f"{timeout_s:g} s"
    _run("venv", [interpreter, "-c", _MAKE, str(folder)], deadline_ms, timeout)
    source = () if packages is None else ("--no-index", "--find-links", str(packages))
    command = [
        str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--no-warn-script-location",
        "--disable-pip-version-check", *source, "--requirement", str(requirements),
    ]  # fmt: skip
    _run("pip", command, deadline_ms, timeout)


def move_programs(folder: Path, target: Path) -> None:
    """Replace the interpreter's path in the programs of an environment that is about to be moved to `target`."""
    for program in (folder / "bin").iterdir():
        if program.is_file() and not program.is_symlink():
            content = program.read_bytes()
            program.write_bytes(content.replace(os.fsencode(folder), os.fsencode(target)))


def packages_of(environment: Path) -> Path:
    """Return the package folder of an environment made by the interpreter of this process."""
    return (
        environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    )


def refuse_loaded_packages(folder: Path) -> None:
    """Raise PackageConflictError if this process has loaded another version of a package in the folder."""
    for module, package, version in _modules_in(folder):
        place = getattr(sys.modules.get(module), "__file__", None)
        if place is None or Path(place).is_relative_to(folder):
            continue
        places = [str(each) for each in Path(place).parents[:2]]
        others = distributions(name=package, path=places)
        loaded = next((other.version for other in others), "of another place")
        if loaded != version:
            raise PackageConflictError(package, version, loaded)


@lru_cache(maxsize=16)
def _modules_in(folder: Path) -> tuple[tuple[str, str, str], ...]:
    """Return the modules in a folder, each with its package and version; cached, because every task needs them."""
    return tuple(
        (module, found.name, found.version)
        for found in distributions(path=[str(folder)])
        for module in {file.parts[0].partition(".")[0] for file in found.files or ()}
    )


def _run(name: str, command: list[str], deadline_ms: float, timeout: str) -> None:
    """Run a program in a process group that ends with it, with this process, and at the deadline."""
    # The import path of Spark's workers must not affect pip.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    guarded = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *command]
    # A pipe would stay open as long as a process that left the group holds it.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            reason = f"{name} could not be started: {error}"
            raise RequirementsNotInstalledError(reason, "") from error
        try:
            code = process.wait(max(0.0, deadline_ms - _CLOCK.monotonic_ms()) / 1000)
            reason = f"{name} ended with {code}"
        except subprocess.TimeoutExpired:
            code, reason = None, f"{name} did not finish within {timeout} ('{INSTALL_TIMEOUT.key}')"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code != 0:
            output.seek(0)
            raise RequirementsNotInstalledError(reason, output.read().decode(errors="replace"))
