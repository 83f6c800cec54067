"""Flink on the JVM: KeyedLatency.java, compiled against the jars of apache-flink's wheel, is what this program becomes.

    python -m benchmarks.keyed_latency.peers.flink_jvm SCRATCH

It runs in the environment of Flink, for its jars. A JDK's `javac` is taken from JAVA_HOME or from PATH.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("KeyedLatency.java")
# What Flink's own scripts open to its serializers.
OPENS: Final = ("java.base/java.lang", "java.base/java.util", "java.base/java.util.concurrent")
COMPILE_TIMEOUT_SECONDS: Final = 120


def java_program(name: str) -> str:
    """Return the path of a program of the JDK; FileNotFoundError where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise FileNotFoundError(f"no {name}: a JDK is needed, by JAVA_HOME or on PATH")
    return found


def main() -> None:
    """Compile the job and become it."""
    scratch = Path(sys.argv[1])
    found = importlib.util.find_spec("pyflink")
    assert found is not None
    assert found.origin is not None
    jars = Path(found.origin).parent / "lib" / "*"
    classes = scratch / "classes"
    compiler = [java_program("javac"), "-nowarn", "-cp", str(jars), "-d", str(classes), str(SOURCE)]
    subprocess.run(compiler, check=True, timeout=COMPILE_TIMEOUT_SECONDS)
    opens = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENS]
    path = f"{jars}{os.pathsep}{classes}"
    java = java_program("java")
    os.execv(java, [java, "-Xmx1g", *opens, "-cp", path, SOURCE.stem, str(scratch)])


if __name__ == "__main__":
    main()
