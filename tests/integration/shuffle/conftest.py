"""Shuffle services and TaskManagers, opened and closed, as the tests of the network have them."""

from tests.integration.network.conftest import opened, service, task_manager

__all__ = ["opened", "service", "task_manager"]
