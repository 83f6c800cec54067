"""Uploads of programs over REST, and the ends of their jobs."""

import json
from typing import Any

from headrace.rest.client import RestClient
from testkit.waiting import wait_until


def send_program(rest: RestClient, name: str, content: bytes) -> dict[str, Any]:
    """Upload a file as `curl -F jarfile=@name` does, and return the answer."""
    body = (
        f'--limit\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n'
        "Content-Type: application/x-java-archive\r\n\r\n"
    ).encode() + content + b"\r\n--limit--\r\n"  # fmt: skip
    kind = "multipart/form-data; boundary=limit"
    return json.loads(rest.exchange("POST", "/jars/upload", body, content_type=kind))


def ended(rest: RestClient, job: str) -> dict[str, Any]:
    """Return the result of a job, by its id, once it has one."""
    path = f"/jobs/{job}/execution-result"
    wait_until(lambda: rest.get(path)["status"]["id"] == "COMPLETED")
    return rest.get(path)["job-execution-result"]
