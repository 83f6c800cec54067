"""A client in a process of its own that brings a job to whoever leads the cluster, and waits for its result over REST.

Its arguments are a JSON file with the cluster's settings, and a file with the job graph. It prints a line of JSON when
the cluster has taken the job, and one with the result.
"""

import json
import sys
from pathlib import Path

import msgspec

from headrace import RestClusterClient
from headrace.core.config import Settings
from headrace.graph.job_graph import JobGraph


def main(settings_file: str, graph_file: str) -> int:
    settings = Settings(json.loads(Path(settings_file).read_text()))
    graph = msgspec.msgpack.decode(Path(graph_file).read_bytes(), type=JobGraph)
    with RestClusterClient.of_leader(settings) as cluster:
        job = cluster.submit_job(graph)
        print(json.dumps({"event": "submitted", "address": cluster.address}), flush=True)
        runtime_ms = job.get_job_execution_result().result().get_net_runtime()
        status = job.get_job_status().result().name
        facts = {"status": status, "runtime_ms": runtime_ms, "address": cluster.address}
        print(json.dumps({"event": "result", **facts}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
