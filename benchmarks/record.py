"""Keeps a benchmark's figures with machine and versions, one JSON line per run under `results/`."""

import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
LOAD_VARIABLE = "HEADRACE_BENCHMARK_LOAD_BEFORE"
LOAD_BEFORE = float(os.environ.get(LOAD_VARIABLE) or round(os.getloadavg()[0], 2))
"""When this process, or what starts several in turn, began: later on the load is mostly the benchmarks' own."""


def record_result(name: str, figures: dict[str, Any]) -> None:
    """Print `figures` and append them to `results/<name>.jsonl`."""
    append_result(name, figures)
    for key, value in figures.items():
        print(f"{key:>28}: {value:,.3f}" if isinstance(value, float) else f"{key:>28}: {value}")


def show_or_record(name: str, figures: dict[str, Any], *, is_dry: bool) -> None:
    """Print `figures` as JSON where nothing is to be kept, else do as `record_result`."""
    if is_dry:
        print(json.dumps(figures, indent=2))
    else:
        record_result(name, figures)


def append_result(name: str, figures: dict[str, Any]) -> None:
    """Append `figures` to `results/<name>.jsonl`."""
    line = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "cpu_count": os.cpu_count(),
        "machine": describe_machine(),
        "load_average_before": LOAD_BEFORE,
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("pyarrow", "numpy", "pyspark")},
        "figures": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as results:
        results.write(json.dumps(line) + "\n")


def read_results(name: str, directory: Path = RESULTS) -> list[dict[str, Any]]:
    """Return what `append_result` kept under this name, the oldest line first; none where nothing was."""
    file = directory / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def describe_machine() -> str:
    """Return processor, memory and system in a few words, as far as the system tells."""
    try:
        information = Path("/proc/cpuinfo").read_text()
        models = [line for line in information.splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip()
    except (OSError, IndexError):
        processor = platform.processor() or platform.machine()
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{os.cpu_count()} x {processor}, {memory_gb:.0f} GB, {platform.system()} {platform.release()}"
