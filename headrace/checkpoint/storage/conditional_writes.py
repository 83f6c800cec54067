"""S3ConditionalWrites: creates an object of S3 only if it is absent, and replaces one only if nobody else has.

    If-None-Match: *         create
    If-Match: <entity tag>   replace what was seen

The store itself compares and writes in one step, so that one of two writers is refused, and a delayed request does not
overwrite newer content. Each object carries the token of its writer: a request that is repeated after a lost answer is
refused because of its own object, and only the token tells that from another writer's object. pyarrow, which reads and
lists, has no conditional writes. All calls block, and raise OSError.
"""

import errno
import logging
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from headrace.core.errors import HostError
from headrace.core.randomness import secret_token

_LOG: Final = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S: Final = 2
_READ_TIMEOUT_S: Final = 5
_ATTEMPTS_MAX: Final = 3
_TOKEN: Final = "headrace-token"
_MISSING: Final = 404
_CONFLICT: Final = 409
"""Status: another conditional write of the same object is in progress; try again."""
_REFUSED: Final = 412
"""Status: the condition is not met."""
_UNKNOWN: Final = 501
"""Status of a store without conditional writes."""
_NUMBERS: Final = {401: errno.EACCES, 403: errno.EACCES, _MISSING: errno.ENOENT}


class S3ClientMissingError(HostError):
    """Raised if conditional writes in S3 are needed, but the client package is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "high availability in an object store of S3 needs boto3 in every driver: "
            "pip install 'headrace[s3]'"
        )


class S3ConditionalWrites:
    """Writes conditionally to one store, with the credentials and endpoint of its URIs, as pyarrow reads them.

    Paths begin with the bucket. Any thread may call it.
    """

    def __init__(self, user: str | None, password: str | None, options: str, region: str) -> None:
        """`options`: the part of a URI after `?`. Raises ImportError."""
        import boto3.session
        import botocore.config
        import botocore.exceptions

        self._failures: Final = (
            botocore.exceptions.BotoCoreError,
            botocore.exceptions.ClientError,
        )
        named = {key: values[-1] for key, values in parse_qs(options).items()}
        endpoint = named.get("endpoint_override")
        if endpoint and "://" not in endpoint:
            endpoint = f"{named.get('scheme', 'https')}://{endpoint}"
        is_by_path = bool(endpoint) and named.get("force_virtual_addressing") != "true"
        session: Any = boto3.session.Session(
            aws_access_key_id=unquote(user) if user else None,
            aws_secret_access_key=unquote(password) if password else None,
            region_name=region or None,
        )
        self._client: Final[Any] = session.client(
            "s3",
            endpoint_url=endpoint,
            verify=named.get("tls_ca_file_path"),
            config=botocore.config.Config(
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=_READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS_MAX},
                s3={"addressing_style": "path" if is_by_path else "auto"},
                # Stores other than Amazon's do not all know its newer checksums.
                request_checksum_calculation="when_required",
            ),
        )
        self._honoured: Final[dict[str, bool]] = {}

    @staticmethod
    def open(
        user: str | None, password: str | None, options: str, region: str, *, is_needed: bool
    ) -> "S3ConditionalWrites | None":
        """Return the writer of a store, one for all its URIs; None if the client package is not installed.

        S3ClientMissingError if `is_needed`.
        """
        try:
            return _opened(user, password, options, region)
        except ImportError as error:
            if is_needed:
                raise S3ClientMissingError from error
            return None

    def is_honoured(self, path: str) -> bool:
        """Return whether the store obeys conditions; tested once per bucket, with an object next to `path`."""
        bucket = path.partition("/")[0]
        if bucket not in self._honoured:
            token = secret_token().hex()[:16]
            self._honoured[bucket] = self._try(f"{path.rpartition('/')[0]}/.conditions-{token}")
            if not self._honoured[bucket]:
                _LOG.warning(
                    "the store of the bucket '%s' ignores conditional writes: two drivers of one job must not run "
                    "there at the same time", bucket,
                )  # fmt: skip
        return self._honoured[bucket]

    def put(self, path: str, content: bytes, token: str) -> bool:
        """Create an object unless it exists; return whether it was created. `token`: unique."""
        if self._write(path, content, token, (_REFUSED,), IfNoneMatch="*"):
            return True
        return self._tag_of(path, token) is not None

    def replace_own(self, path: str, content: bytes, token: str) -> bool:
        """Replace an object that was created with this token; return False if there is none, or another one."""
        for _ in range(_ATTEMPTS_MAX):
            tag = self._tag_of(path, token)
            if tag is None:
                return False
            if self._write(path, content, token, (_REFUSED, _MISSING), IfMatch=tag):
                return True
            # Replaced by its own delayed request, or by another writer: the token shows which.
        raise OSError(errno.EAGAIN, "it was changed repeatedly by other writers")

    def _try(self, path: str) -> bool:
        other = '"00000000000000000000000000000000"'
        try:
            return (
                self._write(path, b"1", "first", (_UNKNOWN,), IfNoneMatch="*")
                and not self._write(path, b"2", "second", (_REFUSED,), IfNoneMatch="*")
                and not self._write(path, b"3", "third", (_REFUSED, _UNKNOWN), IfMatch=other)
            )
        finally:
            bucket, _, key = path.partition("/")
            self._request(path, lambda: self._client.delete_object(Bucket=bucket, Key=key))

    def _write(
        self, path: str, content: bytes, token: str, refusals: tuple[int, ...], **condition: str
    ) -> bool:
        """Write under a condition; return False if the answer is one of the refusals."""
        bucket, _, key = path.partition("/")
        for _ in range(_ATTEMPTS_MAX):
            status, _ = self._request(
                path,
                lambda: self._client.put_object(
                    Bucket=bucket, Key=key, Body=content, Metadata={_TOKEN: token}, **condition
                ),
                (*refusals, _CONFLICT),
            )
            if status != _CONFLICT:
                return status not in refusals
        raise OSError(errno.EAGAIN, "others wrote it repeatedly at the same time")

    def _tag_of(self, path: str, token: str) -> str | None:
        """Return the entity tag of an object that was written with this token, or None."""
        bucket, _, key = path.partition("/")
        status, found = self._request(
            path, lambda: self._client.head_object(Bucket=bucket, Key=key), (_MISSING,)
        )
        if status == _MISSING or found["Metadata"].get(_TOKEN) != token:
            return None
        return found["ETag"]

    def _request(self, path: str, call: Any, expected: tuple[int, ...] = ()) -> tuple[int, Any]:
        """Return a request's status and answer. OSError for a status that is neither 2xx nor expected."""
        try:
            answer = call()
        except self._failures as error:
            found: dict[str, Any] = getattr(error, "response", {})
            status = found.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status in expected:
                return status, None
            raise OSError(_NUMBERS.get(status, errno.EIO), str(error), path) from error
        return answer["ResponseMetadata"]["HTTPStatusCode"], answer


@lru_cache(maxsize=16)
def _opened(
    user: str | None, password: str | None, options: str, region: str
) -> S3ConditionalWrites:
    return S3ConditionalWrites(user, password, options, region)
