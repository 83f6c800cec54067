"""PodImage: what the containers of a Kubernetes cluster on this host are made from.

It is pip's PySpark, a virtual environment with Headrace, and the entry point of the image in `examples/deploy`. Names
of Services are in a file that its JVMs and its Python read.
"""

import os
import shutil
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.spark.java_options import executor_java_options
from tests.spark.pod_names import HOSTS_VARIABLE
from tests.spark.processes import SPARK_HOME
from tests.spark.programs import ROOT

_ENTRY_POINT: Final = ROOT / "examples" / "deploy" / "image" / "entrypoint.sh"


def python_environment(folder: Path) -> Path:
    """Make a virtual environment with Headrace in it, which finds all other packages where they are; return it."""
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    packages = site_packages(environment)
    shutil.copytree(
        ROOT / "headrace", packages / "headrace", ignore=shutil.ignore_patterns("__pycache__")
    )
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def site_packages(environment: Path) -> Path:
    """Return the folder of a virtual environment in which packages lie."""
    [packages] = environment.glob("lib/python*/site-packages")
    return packages


class PodImage:
    """The image. `hosts`: the file of names, which whoever runs pods keeps up to date."""

    def __init__(self, folder: Path) -> None:
        """`folder` must exist."""
        self.hosts: Final = folder / "hosts"
        self.packages: Final = site_packages(python_environment(folder))
        """The folder in which Headrace lies."""
        self.python: Final = folder / "environment" / "bin" / "python"
        """Its interpreter."""
        names = Path(__file__).with_name("pod_names.py")
        shutil.copyfile(names, self.packages / "sitecustomize.py")

    def variables(self, home: Path) -> dict[str, str]:
        """Return what is in the environment of a container of it, whose folder `home` is made."""
        temporary = home / "tmp"
        temporary.mkdir(parents=True)
        places = f"-Djdk.net.hosts.file={self.hosts} -Djava.io.tmpdir={temporary}"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "SPARK_HOME": str(SPARK_HOME),
            "TMPDIR": str(temporary),
            "JDK_JAVA_OPTIONS": f"{places} -XX:-UsePerfData {executor_java_options()}",
            HOSTS_VARIABLE: str(self.hosts),
        }

    def entry_point(self, arguments: list[str], path_of: Callable[[str], str]) -> list[str]:
        """Return the command for a container's arguments. `path_of` translates paths in the container."""
        return ["/bin/sh", str(_ENTRY_POINT), *map(path_of, arguments)]


def hosts_of_services(services: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[str]:
    """Return the lines for Services without an address of their own: the addresses of the ready pods they select."""
    found: list[str] = []
    for service in services:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        selector = service["spec"]["selector"].items()
        for pod in pods:
            labels, status = pod["metadata"].get("labels") or {}, pod["status"]
            if selector <= labels.items() and status["phase"] == "Running":
                found.append(f"{status['podIP']} {name}.{namespace}.svc {name}.{namespace} {name}")
    return found
