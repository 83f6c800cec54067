"""The model of examples/score_readings.py: on the GPU that Spark keeps for its subtask, or on a processor."""

import runpy
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.types.type_info import Types
from headrace.functions.specs.operator_specs import MapBatchesSpec
from headrace.operators.runtime.contexts import OperatorRuntimeContext
from headrace.testing.operator_harness import OperatorHarness

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "score_readings.py"
READING = pa.record_batch({"sensor": [7], "heat": [1.0], "load": [0.0]})
SCORE = 1 / (1 + np.exp(-0.8))


def devices_of(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, *, has_device: bool = True
) -> list[int]:
    """Score a reading beside a made-up CuPy; return the devices that it was computed on."""
    devices: list[int] = []

    def device(number: int) -> AbstractContextManager[None]:
        devices.append(number)
        return nullcontext()

    cupy: Any = ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None)
    cupy.cuda = SimpleNamespace(is_available=lambda: has_device, Device=device)
    cupy.asarray, cupy.exp = np.asarray, np.exp
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    function = runpy.run_path(str(EXAMPLE))["Score"]()
    row = Types.ROW_NAMED(["sensor"], [Types.LONG()])
    harness = OperatorHarness(MapBatchesSpec(lambda batch: batch), input_types=[row])
    context = replace(harness.context, external_resources={"gpu": addresses})
    function.open(OperatorRuntimeContext(context, None, None))
    assert function.map_batches(READING).to_pylist() == [{"sensor": 7, "heat": 1.0, "score": SCORE}]
    return devices


def test_a_subtask_computes_on_the_first_gpu_of_those_that_spark_keeps_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices_of(("10", "9"), monkeypatch) == [9]


def test_a_subtask_for_which_spark_keeps_no_gpu_computes_on_the_first_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices_of((), monkeypatch) == [0]


def test_a_host_with_cupy_and_without_a_gpu_computes_on_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert devices_of(("1",), monkeypatch, has_device=False) == []
