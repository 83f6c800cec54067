"""Keeps a benchmark's figures with machine and versions, one JSON line per run under `results/`."""

import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def record_result(name: str, figures: dict[str, Any]) -> None:
    """Print `figures` and append them to `results/<name>.jsonl`."""
    line = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%d"),
        "cpu_count": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in ("pyarrow", "numpy", "pyspark")},
        "figures": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as results:
        results.write(json.dumps(line) + "\n")
    for key, value in figures.items():
        print(f"{key:>28}: {value:,.3f}" if isinstance(value, float) else f"{key:>28}: {value}")
