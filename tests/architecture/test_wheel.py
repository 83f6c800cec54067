"""The wheel: its folders, the files of `headrace.testing`, no test code, and a bound of its size."""

import re
import zipfile
from pathlib import Path

import headrace
from tests.built_wheel import build_wheel

WHEEL_BYTES_MAX = 2_350_000


def test_the_wheel_holds_what_users_need_and_no_more(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {
        "headrace",
        "pyspark_headrace",
        "pyspark_headrace_stream",
        f"headrace-{headrace.__version__}.dist-info",
    }
    dashboard = [name for name in names if name.startswith("headrace/rest/dashboard/")]
    assert {Path(name).suffix for name in dashboard} >= {".html", ".js", ".css"}
    testing = {name.split("/")[2] for name in names if name.startswith("headrace/testing/")}
    assert testing == {
        "__init__.py",
        "fault_proxy",
        "fixtures.py",
        "minicluster_executor.py",
        "operator_harness.py",
        "operator_ways.py",
    }
    # `headrace trace` has a network of its own to show a protocol on; everything else that plays at one is no product.
    unwanted = re.compile(r"chaos|faulty|planted|scripted|simulat(?!ed_transport)")
    assert [name for name in names if unwanted.search(name)] == []
    assert wheel.stat().st_size < WHEEL_BYTES_MAX
