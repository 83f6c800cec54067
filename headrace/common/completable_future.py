"""PyFlink's `common.completable_future`: re-exports."""

from headrace.api.client.job_client import CompletableFuture

__all__ = [
    "CompletableFuture",
]
