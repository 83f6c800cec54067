"""Whatever a request holds, REST answers it with an error of the client's, and nothing fails inside."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, quote_plus

from hypothesis import given
from hypothesis import strategies as st

from headrace.rest.messages import MESSAGE
from headrace.rest.routes import ROUTES, RestRoute
from tests.unit.rest.sample_cluster import COUNTER, FAILED_JOB, RUNNING_JOB, TASK_MANAGER
from tests.unit.rest.served_cluster import ServedCluster

# These end something that the other requests need, or answer 500 and 503 by contract whatever comes.
LEFT_OUT = {("DELETE", "/cluster")}
FAILS_BY_CONTRACT = re.compile(
    "Could not find Flink job|there is no TaskManager|there is no log file|does not support|Rescaling is temporarily"
)
VALUES = st.sampled_from(
    [
        RUNNING_JOB.hex(),
        FAILED_JOB.hex(),
        COUNTER.hex(),
        str(TASK_MANAGER),
        "0",
        "1",
        "3",
        "-1",
        "9" * 40,
    ]
) | st.text(min_size=1, max_size=40)
NAMES = st.sampled_from(
    [
        "get",
        "agg",
        "subtasks",
        "jobs",
        "taskmanagers",
        "mode",
        "maxExceptions",
        "type",
        "subtaskindex",
        "parallelism",
        "state",
        "table",
        "keys",
        "limit",
        "snapshot",
    ]
) | st.text(max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["targetDirectory", "target-directory", "drain", "cancel-job", "formatType", "triggerId", "checkpointType", "token",
     "savepoint-path", "snapshot", "reason", "edits"]
)  # fmt: skip
BODIES = (
    st.binary(max_size=60)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(FIELDS, JSON, max_size=4).map(lambda value: json.dumps(value).encode())
)


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    listener = Listener(logging.ERROR)
    logging.getLogger("headrace.rest").addHandler(listener)
    try:
        yield found
    finally:
        logging.getLogger("headrace.rest").removeHandler(listener)


def filled(route: RestRoute, values: list[str]) -> str:
    given_values = iter(values)
    return re.sub(r"\{\w+\}", lambda _: quote(next(given_values), safe=""), route.path)


@given(data=st.data())
def test_no_request_fails_inside(cluster: ServedCluster, data: st.DataObject) -> None:
    route = data.draw(
        st.sampled_from([route for route in ROUTES if (route.method, route.path) not in LEFT_OUT])
    )
    values = data.draw(st.lists(VALUES, min_size=5, max_size=5))
    query = data.draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    path = filled(route, values)
    if query:
        path += "?" + "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query)
    body: Any = None if route.method == "GET" else data.draw(BODIES)
    headers = {"Authorization": f"Bearer {cluster.token}"}
    if data.draw(st.booleans()):
        headers["Accept"] = MESSAGE
    with logged_errors() as errors:
        answer = cluster.ask(route.method, path, body, headers=headers)
    assert errors == []
    if answer.headers.get("content-type") == MESSAGE:
        said = answer.body.decode("utf-8", "replace")
        by_contract = answer.status < 500 or FAILS_BY_CONTRACT.search(said)
        assert by_contract, (route.method, path, answer.body)
        return
    if answer.status >= 400:
        assert all(isinstance(text, str) for text in answer.json["errors"])
    if answer.status >= 500:
        assert FAILS_BY_CONTRACT.search(answer.errors), (route.method, path, answer.body)
