"""Debian's Prometheus, asked as Grafana asks it."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from testkit.ports import free_ports
from testkit.waiting import wait_until

Series = tuple[dict[str, str], float]
"""Labels and value of a series."""
_VARIABLE: Final = re.compile(r"\$(\w+)")
_LABEL_VALUES: Final = re.compile(r"label_values\((\w+), (\w+)\)")


class PrometheusServer:
    """A Prometheus that runs."""

    def __init__(self, url: str, log: Path) -> None:
        self.url: Final = url
        self.log: Final = log

    def query(self, expression: str) -> list[Series]:
        """Return the series of an expression as of now, without those that are no number."""
        found = self._get("query", query=expression)["result"]
        series = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, value) for labels, value in series if math.isfinite(value)]

    def await_series(self, expression: str, title: str) -> None:
        """Wait until an expression has series."""
        wait_until(lambda: bool(self.query(expression)), what=f"data of {title}: {expression}")

    def label_values(self, expression: str) -> list[str]:
        """Return what a variable with Grafana's `label_values(metric, label)` offers."""
        match = _LABEL_VALUES.fullmatch(expression)
        assert match is not None, expression
        metric, label = match.groups()
        return self._get(f"label/{label}/values", **{"match[]": metric})

    def targets(self) -> list[tuple[str, str]]:
        """Return health and last error of each target."""
        found = self._get("targets", state="active")["activeTargets"]
        return [(one["health"], one["lastError"]) for one in found]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready", timeout=30) as answer:
                return answer.status == HTTPStatus.OK
        except URLError:
            return False

    def _get(self, path: str, **query: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(query)}", timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success" and "warnings" not in found, found
        return found["data"]


def interpolated(expression: str, variables: Mapping[str, str]) -> str:
    """Put values in the place of a dashboard's variables."""
    return _VARIABLE.sub(lambda found: variables[found[1]], expression)


def chosen(values: Sequence[str]) -> str:
    """Return what Grafana puts in the place of a variable with these values chosen: escaped, in a string of PromQL."""
    return "(" + "|".join(re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", one) for one in values) + ")"


def program_path(name: str) -> str:
    """Return the path of one of the programs of Debian's package; tests fail without it, with what to do."""
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"there is no {name}: apt-get install prometheus")
    return program


@contextmanager
def prometheus_server(folder: Path, configuration: Path) -> Generator[PrometheusServer]:
    """Run Prometheus with a configuration, on a free port of loopback."""
    program = program_path("prometheus")
    (port,) = free_ports()
    address = f"127.0.0.1:{port}"
    log = folder / "prometheus.txt"
    options = (
        f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}",
    )  # fmt: skip
    with log.open("wb") as written:
        process = subprocess.Popen([program, *options], stdout=written, stderr=written)
    try:
        server = PrometheusServer(f"http://{address}", log)
        wait_until(server.is_ready, what=f"Prometheus at {address}, which logs to {log}")
        yield server
    finally:
        process.terminate()
        process.wait(30)
