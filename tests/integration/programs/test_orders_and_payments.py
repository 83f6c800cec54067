"""The example that brings two streams together, on a cluster in one process."""

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment
from tests.architecture.floor_plan import ROOT


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "examples" / "orders_and_payments.py"
    spec = importlib.util.spec_from_file_location("orders_and_payments", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return sorted(tuple(row) for row in rows)


def streams(env: StreamExecutionEnvironment, example: ModuleType) -> tuple[Any, Any]:
    orders = example.in_event_time(env.from_collection(example.ORDERS, example.ORDER))
    payments = example.in_event_time(env.from_collection(example.PAYMENTS, example.PAYMENT))
    return orders, payments


def test_orders_are_joined_with_payments_within_half_an_hour(
    env: StreamExecutionEnvironment, example: ModuleType
) -> None:
    paid = collected(example.paid(*streams(env, example)))
    assert paid == [(1, 12), (2, 2), (4, 25), (5, 20)]


def test_orders_that_were_not_paid_in_their_hour_are_found(
    env: StreamExecutionEnvironment, example: ModuleType
) -> None:
    unpaid = collected(example.unpaid(*streams(env, example)))
    assert unpaid == [(3, 60), (4, 90), (6, 120)]


def test_averages_are_of_the_last_three_orders(
    env: StreamExecutionEnvironment, example: ModuleType
) -> None:
    averages = collected(example.averages(streams(env, example)[0]))
    assert averages == [
        ("ada", 30.0),
        ("ada", 45.0),
        ("ada", 60.0),
        ("ada", 90.0),
        ("bob", 12.0),
        ("bob", 15.0),
    ]


def test_the_program_prints_each_result_under_its_name(
    env: StreamExecutionEnvironment, example: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    env.set_parallelism(1)
    example.main()
    lines = capfd.readouterr().out.splitlines()
    names = [line.split("> ")[0].split(":")[0] for line in lines if "> " in line]
    assert {name: names.count(name) for name in names} == {"paid": 4, "unpaid": 3, "average": 6}
