"""PyFlink's `common.completable_future`: re-exports."""

from headrace.api.client.completable_future import CompletableFuture

__all__ = [
    "CompletableFuture",
]
