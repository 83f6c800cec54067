"""Configuration of a job for people: its settings win over the cluster's, and no secret is told."""

import msgspec

from headrace.cluster.job_master.job_details import describe_configuration
from headrace.core.config import Settings
from tests.unit.cluster.cluster_samples import job_graph, vertex

CLUSTER = Settings({"pipeline.object-reuse": "true", "slot.request.timeout": "1 min"})


def test_a_job_has_its_own_settings_over_the_clusters() -> None:
    graph = job_graph((vertex(1, 1),), settings={"slot.request.timeout": "2 min"})
    shown = describe_configuration(graph, CLUSTER)
    assert shown.settings == {"pipeline.object-reuse": "true", "slot.request.timeout": "2 min"}
    assert shown.object_reuse


def test_no_secret_is_told_whether_it_is_a_setting_or_a_parameter_of_the_program() -> None:
    settings = {
        "kafka.sasl.password": "hunter2",
        "pipeline.global-job-parameters.api.token": "hunter2",
        "pipeline.global-job-parameters.url": "https://me:hunter2@host/",
        "pipeline.global-job-parameters.city": "Basel",
    }
    shown = describe_configuration(job_graph((vertex(1, 1),), settings=settings), CLUSTER)
    assert b"hunter2" not in msgspec.json.encode(shown)
    assert shown.settings["kafka.sasl.password"] == "******"
    assert shown.user_parameters["api.token"] == "******"
    assert shown.user_parameters["city"] == "Basel"


def test_parallelism_is_the_settings_or_else_the_greatest_of_a_vertex() -> None:
    vertices = (vertex(1, 2), vertex(2, 5))
    assert describe_configuration(job_graph(vertices), CLUSTER).parallelism == 5
    graph = job_graph(vertices, settings={"parallelism.default": "3"})
    assert describe_configuration(graph, CLUSTER).parallelism == 3


def test_only_the_jobs_own_restart_strategy_is_named() -> None:
    cluster = Settings({"restart-strategy.type": "none"})
    graph = job_graph((vertex(1, 1),))
    shown = describe_configuration(graph, cluster)
    assert shown.restart_strategy == "Cluster level default restart strategy"
    own = job_graph((vertex(1, 1),), settings={"restart-strategy.type": "none"})
    assert describe_configuration(own, Settings()).restart_strategy == "Restart deactivated."
