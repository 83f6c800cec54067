"""Spark's web page is not started where others would reach it, and what cannot start is told and not tried again."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.spark.session.web_page import WebPage, WebPageError


class CountedContext:
    """A SparkContext whose JVM was started with SPARK_LOCAL_IP=`local_ip`; counts who asked it."""

    def __init__(self, local_ip: str | None) -> None:
        self.asked_count = 0
        java: Any = SimpleNamespace(
            lang=SimpleNamespace(System=SimpleNamespace(getenv=lambda _: local_ip))
        )
        self._jvm = SimpleNamespace(java=java)

    @property
    def _jsc(self) -> Any:
        self.asked_count += 1
        return SimpleNamespace(sc=lambda: None)


def page_of(context: Any) -> WebPage:
    session: Any = SimpleNamespace(
        sparkContext=context, _jsparkSession=SimpleNamespace(sharedState=lambda: None)
    )
    return WebPage(session)


@pytest.mark.parametrize("local_ip", [None, "0.0.0.0", "192.0.2.1"])
def test_a_jvm_that_listens_beyond_this_host_starts_no_page(local_ip: str | None) -> None:
    context = CountedContext(local_ip)
    page = page_of(context)
    for _ in range(2):
        with pytest.raises(WebPageError, match="SPARK_LOCAL_IP was not set"):
            page.address()
    assert context.asked_count == 1


def test_a_session_that_was_stopped_has_no_page() -> None:
    page = page_of(SimpleNamespace(_jsc=None))
    with pytest.raises(WebPageError, match="did not start: its SparkSession was stopped"):
        page.address()
