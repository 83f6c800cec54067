"""A Spark home of a session's own leads to the installed one and has nothing of executors."""

import shutil
from pathlib import Path

from headrace.spark.session.session import link_spark_home


def installed_spark(directory: Path) -> Path:
    installed = directory / "installed"
    (installed / "jars").mkdir(parents=True)
    (installed / "jars" / "spark.jar").write_text("classes")
    (installed / "work" / "app-1").mkdir(parents=True)
    return installed


def test_everything_is_found_but_what_executors_have_left(tmp_path: Path) -> None:
    link_spark_home(installed_spark(tmp_path), tmp_path / "home")
    assert (tmp_path / "home" / "jars" / "spark.jar").read_text() == "classes"
    assert [one.name for one in (tmp_path / "home").iterdir()] == ["jars"]


def test_the_installed_spark_is_still_there_when_the_home_is_deleted(tmp_path: Path) -> None:
    installed = installed_spark(tmp_path)
    link_spark_home(installed, tmp_path / "home")
    shutil.rmtree(tmp_path / "home")
    assert (installed / "jars" / "spark.jar").read_text() == "classes"
