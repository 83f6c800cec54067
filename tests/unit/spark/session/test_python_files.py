"""Modules of a job come to workers once, and before these start."""

from pathlib import Path

import pytest

from headrace.spark.session.python_files import (
    LateFilesError,
    ShippedFiles,
)


def test_files_of_a_job_are_shipped_once_and_refused_when_workers_run_without_them() -> None:
    shipped = ShippedFiles(are_seen=False)
    assert shipped.add((Path("/a.py"),)) == (Path("/a.py"),)
    assert shipped.add((Path("/a.py"), Path("/b.py"))) == (Path("/b.py"),)
    shipped.workers_start()
    assert shipped.add((Path("/a.py"),)) == ()
    with pytest.raises(
        LateFilesError, match=r"/c\.py \(python\.files\) came after .*--python-files"
    ):
        shipped.add((Path("/a.py"), Path("/c.py")))


def test_files_of_a_later_job_need_not_be_shipped_where_workers_see_them() -> None:
    shipped = ShippedFiles(are_seen=True)
    assert shipped.add((Path("/a.py"),)) == (Path("/a.py"),)
    shipped.workers_start()
    assert shipped.add((Path("/a.py"), Path("/c.py"))) == ()
