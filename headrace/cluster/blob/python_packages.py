"""Installs the packages of a requirements file into a folder, by the interpreter of this process."""

import logging
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

from headrace.core.config import ConfigOption
from headrace.core.errors import ErrorDomain, HeadraceError

INSTALL_TIMEOUT: Final = ConfigOption(
    "headrace.python.requirements.timeout",
    timedelta,
    timedelta(minutes=10),
    "Time that the installation of a job's requirements may take on a host.",
)
_OUTPUT_CHARS: Final = 4_000
_LOG: Final = logging.getLogger(__name__)


class RequirementsNotInstalledError(HeadraceError):
    """The packages of a job's requirements file could not be installed on a host; `output` is what pip said last."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, reason: str, output: str) -> None:
        said = output.strip()[-_OUTPUT_CHARS:]
        super().__init__(
            f"the packages of python.requirements could not be installed: {reason}; where the registry of packages is "
            "out of reach of the workers, bring the packages with the job: set_python_requirements(file, folder)"
            + (f"\n{said}" if said else "")
        )
        self.output = said


def install_packages(
    requirements: Path, packages: Path | None, folder: Path, timeout_s: float
) -> None:
    """Install into `folder`; from the files in `packages` alone where that is given. RequirementsNotInstalledError."""
    source = () if packages is None else ("--no-index", "--find-links", str(packages))
    command = [
        sys.executable, "-m", "pip", "install", "--target", str(folder), "--no-input", "--no-warn-script-location",
        "--disable-pip-version-check", *source, "--requirement", str(requirements),
    ]  # fmt: skip
    try:
        # What Spark put onto the path of its workers is not pip's concern.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        said = error.output if isinstance(error.output, str) else ""
        reason = f"pip was not done within {timeout_s:g} s ('{INSTALL_TIMEOUT.key}')"
        raise RequirementsNotInstalledError(reason, said) from error
    except OSError as error:
        raise RequirementsNotInstalledError(f"pip does not start: {error}", "") from error
    if done.returncode != 0:
        raise RequirementsNotInstalledError(f"pip ended with {done.returncode}", done.stdout)
    _LOG.info("the packages of python.requirements are installed")


def tell_of_loaded_modules(folder: Path) -> None:
    """Log the modules of a folder that this process has imported from elsewhere, and therefore keeps."""
    names = {
        path.name.removesuffix(".py") for path in folder.iterdir() if path.suffix in ("", ".py")
    }
    loaded = sorted(
        name
        for name in names & sys.modules.keys()
        if not str(getattr(sys.modules[name], "__file__", None) or folder).startswith(str(folder))
    )
    if loaded:
        _LOG.warning(
            "python.requirements: this process has imported %s already, and keeps the version that it has",
            ", ".join(loaded),
        )
