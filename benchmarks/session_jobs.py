"""How long does a job of two tasks wait until it runs, when eight clients bring two hundred to one session at once?

The session is a daemon on Spark, as `headrace cluster start` makes it: with four TaskManagers that jobs share, or,
`--exclusive` and its default, with a TaskManager for each job alone, which is started when the job comes; `--spare`
says how many are kept ahead of the jobs. Each client is a process of its own: it submits a job over REST, looks every
0.2 s whether all its tasks run, and then submits the next one while those before go on. A job has waited from its
submission until its JobMaster saw the last task running, by the clock of this host. Then all jobs are cancelled, and
rounds of as many follow until `--ended` jobs have ended: figures are what the driver's process keeps per ended job,
from a round that has warmed it up to the last one, what its JVM's heap holds after a collection, how many threads,
sockets and open files it has more than before, and how many files lie on disk below its folder, temporary files among
them. Log files are counted apart: those of the last `headrace.resourcemanager.ended-task-managers` stay, two of each.
Of sockets that is one for each TaskManager that is there throughout: to the process that watches its interpreter
lock, from its first answer to a heartbeat on.

    python -m benchmarks.session_jobs [--jobs 200] [--clients 8] [--ended 1000] [--exclusive] [--spare 0] [--dry]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.record import show_or_record
from headrace import RestClusterClient, StreamExecutionEnvironment, Types
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.functions.sink import DiscardingSink

TASK_MANAGERS: Final = 4
TIMEOUT_S: Final = 300.0
LOOK_S: Final = 0.2
"""Interval at which clients look: eight of them that look more often take a core from the session."""
SETTLE_S: Final = 3.0


def environment(address: str) -> StreamExecutionEnvironment:
    """Return the environment of a client, with a job of two tasks that has no end."""
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = {
        "execution.target": "remote",
        "rest.address": address,
        "parallelism.default": "1",
        "pipeline.operator-chaining.enabled": "false",
    }
    env.configure(Configuration.from_dict(settings))
    return env


def submit(env: StreamExecutionEnvironment, name: str) -> JobClient:
    """Submit one job."""
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.sink_to(DiscardingSink())
    return env.execute_async(name)


def running_since_ms(client: JobClient) -> int:
    """Return once every task of the job runs: when the last one of them was running, in milliseconds of wall time."""
    while True:
        details = client.get_job_details().result(TIMEOUT_S)
        if details.status.is_terminal_state():
            raise RuntimeError(f"job '{details.name}' is {details.status.name}: {details.failure}")
        subtasks = [subtask for vertex in details.vertices for subtask in vertex.subtasks]
        if subtasks and all(subtask.state is ExecutionState.RUNNING for subtask in subtasks):
            name = ExecutionState.RUNNING.name
            return max(subtask.timestamps_ms[name] for subtask in subtasks)
        time.sleep(LOOK_S)


def be_client(arguments: list[str]) -> None:
    """Bring jobs, one after the other; print how long each waited, in seconds."""
    address, number, count = arguments
    env = environment(address)
    print("ready", flush=True)
    sys.stdin.readline()
    waits: list[float] = []
    for index in range(int(count)):
        began = time.time()
        waits.append(running_since_ms(submit(env, f"job {number}-{index}")) / 1000 - began)
    print(json.dumps(waits))


def waits_of_clients(address: str, client_count: int, job_count: int) -> list[float]:
    """Have clients bring `job_count` jobs together; return how long each job waited."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "client", address, str(number), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(client_count)
        if (count := job_count // client_count + (number < job_count % client_count))
    ]
    found: list[float] = []
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    for client in clients:
        out, _ = client.communicate(timeout=TIMEOUT_S)
        assert client.returncode == 0, f"a client has ended with {client.returncode}"
        found += json.loads(out)
    return found


def jvm_of(process: int) -> int:
    """Return the Java process that `process` has started."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    for child in (pid for listed in children for pid in listed.read_text().split()):
        if (Path("/proc") / child / "comm").read_text() == "java\n":
            return int(child)
    raise RuntimeError(f"process {process} has no JVM")


def heap_bytes_of(jvm: int) -> int:
    """Return what a JVM's heap holds after a collection; needs `jcmd` of its JDK."""
    command = [str(Path(f"/proc/{jvm}/exe").resolve().with_name("jcmd")), str(jvm)]
    subprocess.run([*command, "GC.run"], check=True, stdout=subprocess.DEVNULL)
    told = subprocess.run([*command, "GC.heap_info"], check=True, stdout=subprocess.PIPE, text=True)
    found = re.search(r"used (\d+)K", told.stdout)
    assert found is not None, told.stdout
    return int(found[1]) * 1024


def status_of(process: int) -> dict[str, str]:
    """Return what Linux says of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def kept_by(process: int) -> dict[str, int]:
    """Return memory, threads and open files of a process, the memory of its JVM, and how many files lie on disk."""
    jvm = jvm_of(process)
    home = Path(os.environ["HEADRACE_HOME"])
    log_count = sum(len(names) for *_, names in os.walk(home / "logs"))
    fields = status_of(process)
    links = [
        os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()
    ]
    kinds = Counter("sockets" if link.startswith("socket:") else "files" for link in links)
    return {
        "resident_bytes": int(fields["VmRSS"].split()[0]) * 1024,
        "jvm_resident_bytes": int(status_of(jvm)["VmRSS"].split()[0]) * 1024,
        "jvm_heap_bytes": heap_bytes_of(jvm),
        "threads": int(fields["Threads"]),
        "files_on_disk": sum(len(names) for *_, names in os.walk(home)) - log_count,
        "log_files": log_count,
        **kinds,
    }


def end_all(cluster: RestClusterClient) -> None:
    """Cancel the jobs that run, and wait for their ends."""
    running = [job.job_id for job in cluster.list_jobs() if not job.status.is_terminal_state()]
    for job_id in running:
        cluster.cancel(job_id)
    deadline = time.monotonic() + TIMEOUT_S
    while any(not job.status.is_terminal_state() for job in cluster.list_jobs()):
        assert time.monotonic() < deadline, "the jobs do not end"
        time.sleep(LOOK_S)
    time.sleep(SETTLE_S)


def shared_settings(job_count: int) -> dict[str, str]:
    """Return settings of a session whose TaskManagers are there before the jobs, and shared by them."""
    return {
        "headrace.resourcemanager.exclusive-task-managers": "false",
        "headrace.spark.slots": str(TASK_MANAGERS),
        "headrace.taskmanager.fixed-pool.size": str(TASK_MANAGERS),
        "taskmanager.numberOfTaskSlots": str(-(-job_count // TASK_MANAGERS)),
    }


def exclusive_settings(job_count: int, spare_count: int) -> dict[str, str]:
    """Return settings of a session each of whose jobs has a TaskManager of its own."""
    return {
        "headrace.spark.slots": str(job_count + spare_count),
        "slotmanager.redundant-taskmanager-num": str(spare_count),
    }


def measure(
    settings: dict[str, str], slot_count: int, client_count: int, job_count: int, ended_count: int
) -> dict[str, Any]:
    """Return the figures of one session, once it has `slot_count` slots."""
    with tempfile.TemporaryDirectory() as home:
        # Also what Spark and we put into temporary folders lies there, so that it is counted.
        os.environ["HEADRACE_HOME"] = os.environ["TMPDIR"] = home
        settings = {
            **settings,
            "spark.ui.enabled": "false",
            # So that a client sees soon what it waits for.
            "web.refresh-interval": "100 ms",
        }
        command = [str(Path(sys.executable).with_name("headrace")), "cluster"]
        given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        started = subprocess.run(
            [*command, "start", "--json", *given], check=True, stdout=subprocess.PIPE, text=True
        )
        session = json.loads(started.stdout)
        try:
            with RestClusterClient(session["address"]) as cluster:
                while cluster.slots_available() < slot_count:
                    time.sleep(LOOK_S)
                return rounds(cluster, session["pid"], client_count, job_count, ended_count)
        finally:
            subprocess.run([*command, "stop"], check=True, stdout=subprocess.DEVNULL)


def rounds(
    cluster: RestClusterClient, process: int, client_count: int, job_count: int, ended_count: int
) -> dict[str, Any]:
    """Bring jobs and end them, until enough have ended."""
    # What the first jobs load stays, and is no job's.
    waits_of_clients(cluster.address, 1, 1)
    end_all(cluster)
    waits = waits_of_clients(cluster.address, client_count, job_count)
    running = sum(job.status is JobStatus.RUNNING for job in cluster.list_jobs())
    peak = kept_by(process)
    end_all(cluster)
    before, ended = kept_by(process), 0
    while ended + job_count < ended_count:
        waits_of_clients(cluster.address, client_count, job_count)
        end_all(cluster)
        ended += job_count
        print(ended, kept_by(process), flush=True)
    after = kept_by(process)
    ordered = sorted(waits)
    grown = after["resident_bytes"] - before["resident_bytes"]
    return {
        "jobs": job_count,
        "clients": client_count,
        "running_at_once": running,
        "submit_to_running_p50_s": ordered[len(ordered) // 2],
        "submit_to_running_p95_s": ordered[int(len(ordered) * 0.95)],
        "submit_to_running_max_s": ordered[-1],
        "ended_jobs": ended,
        "kept_bytes_per_ended_job": grown / max(1, ended),
        "driver_resident_bytes": after["resident_bytes"],
        "jvm_resident_bytes": after["jvm_resident_bytes"],
        "jvm_grown_bytes": after["jvm_resident_bytes"] - before["jvm_resident_bytes"],
        "jvm_heap_bytes": after["jvm_heap_bytes"],
        "jvm_heap_grown_bytes": after["jvm_heap_bytes"] - before["jvm_heap_bytes"],
        "files_on_disk_before": before["files_on_disk"],
        "files_on_disk_left": after["files_on_disk"] - before["files_on_disk"],
        "log_files": after["log_files"],
        **{f"{kind}_left": after[kind] - before[kind] for kind in ("threads", "sockets", "files")},
        **{f"{kind}_at_peak": peak[kind] for kind in ("threads", "sockets", "files")},
    }


def main() -> None:
    """Measure, or be one client of a measurement."""
    if sys.argv[1:2] == ["client"]:
        be_client(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--ended", type=int, default=1000)
    parser.add_argument("--exclusive", action="store_true", help="a TaskManager for each job alone")
    parser.add_argument(
        "--spare", type=int, default=0, help="idle ones that are kept for next jobs"
    )
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    counts = options.clients, options.jobs, options.ended
    if options.exclusive:
        figures = measure(exclusive_settings(options.jobs, options.spare), 0, *counts)
    else:
        figures = measure(shared_settings(options.jobs), options.jobs, *counts)
    figures |= {"exclusive": options.exclusive, "spare": options.spare}
    show_or_record("session_jobs", figures, is_dry=options.dry)


if __name__ == "__main__":
    main()
