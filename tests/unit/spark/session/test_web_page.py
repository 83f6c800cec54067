"""Spark's web page listens on loopback, whatever Spark does; what cannot start is told and not tried again."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace.spark.session.web_page import WebPage, WebPageError


class Spark:
    """A session whose JVM does all that it is asked; its page speaks TLS on request."""

    def __init__(self, *, has_tls: bool) -> None:
        self.session: Any = MagicMock()
        self.ui: Any = self.session.sparkContext._jvm.org.apache.spark.ui
        self.made: Any = self.ui.SparkUI.create
        self.made.return_value.sslOptions.return_value.enabled.return_value = has_tls
        self.made.return_value.boundPort.return_value = 4051
        context = self.session.sparkContext._jsc.sc.return_value
        self.conf: Any = context.conf.return_value.clone.return_value
        self.conf.get.return_value = "4050"


def test_the_page_is_at_the_port_that_was_asked_for_on_loopback_and_has_a_key_of_its_own() -> None:
    spark = Spark(has_tls=False)
    page = WebPage(spark.session)
    assert page.address() == page.address() == "http://127.0.0.1:4051"
    (listener,) = spark.ui.JettyUtils.startJettyServer.call_args_list
    assert listener.args[:2] == ("127.0.0.1", 4050)
    given = dict(call.args for call in spark.conf.set.call_args_list)
    assert given["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert given["spark.org.apache.spark.ui.JWSFilter.param.secretKey"] == page.key
    assert page.key != WebPage(spark.session).key


def test_a_page_that_would_speak_tls_is_refused_once() -> None:
    spark = Spark(has_tls=True)
    page = WebPage(spark.session)
    for _ in range(2):
        with pytest.raises(WebPageError, match=r"set spark\.ssl\.ui\.enabled to false"):
            page.address()
    assert spark.made.call_count == 1
    assert not spark.ui.JettyUtils.startJettyServer.called


def test_a_session_that_was_stopped_has_no_page() -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(WebPageError, match="did not start: its SparkSession was stopped"):
        WebPage(session).address()
