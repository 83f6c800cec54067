"""Objects that carry a cluster's secret show nothing of it, as in a log or a traceback."""

from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.ids import ResourceId
from headrace.core.security.tls import TlsIdentity


def test_a_task_manager_s_configuration_shows_neither_secret_nor_key_nor_settings() -> None:
    configuration = TaskManagerConfiguration(
        ResourceId("tm-1"),
        "headrace.tcp://host:1/rpc/leaders",
        b"the secret",
        {"some.password": "hush"},
        tls=TlsIdentity(b"a certificate", b"the key"),
    )
    shown = repr(configuration)
    assert "tm-1" in shown and "a certificate" in shown
    assert not [word for word in ("the secret", "the key", "hush") if word in shown]
