"""FencedRpcEndpoint: serves only calls that carry the session of its leadership.

The token is given once and never changes: new leadership means a new endpoint. Source: Flink FencedRpcEndpoint.
"""

from typing import Generic, TypeVar

from headrace.core.ids import FencingToken
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import FencingTokenError
from headrace.rpc.service import RpcService

F = TypeVar("F", bound=FencingToken)


class FencedRpcEndpoint(RpcEndpoint, Generic[F]):
    """An endpoint whose handlers are reached only with `fencing_token`."""

    def __init__(self, rpc_service: RpcService, endpoint_name: str, fencing_token: F) -> None:
        self.fencing_token = fencing_token
        self.stale_call_count = 0
        """How many calls were refused because of their token."""
        super().__init__(rpc_service, endpoint_name)

    def own_token(self) -> FencingToken | None:
        """The token that calls must carry."""
        return self.fencing_token

    def check_fencing(self, method: str, token: bytes | None) -> None:
        """FencingTokenError for a call with another token, or none."""
        if token != self.fencing_token.value:
            self.stale_call_count += 1
            raise FencingTokenError(
                self.address, method, self.fencing_token.hex(), token.hex() if token else None
            )
