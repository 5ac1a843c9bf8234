"""One object in an S3 bucket, replaced only where it is still the one that was read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ...core.errors import ConfigurationError, Outcome, ResourceUnavailable
from .compare_and_set import AnswerLost, Conflict, Versioned
from .http_client import HttpClient, NoAnswer, NotSent, Reply
from .s3_signature import Credentials, signed

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,200})</Message>")
NO_SUCH_ETAG = '"00000000000000000000000000000000"'


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where an object is. ``endpoint`` is ``https://host:port``; empty for Amazon's in ``region``."""

    bucket: str
    key: str
    region: str
    endpoint: str = ""

    @property
    def url(self) -> str:
        key = quote(self.key, safe="/-_.~")
        if self.endpoint:
            return f"{self.endpoint.rstrip('/')}/{quote(self.bucket, safe='')}/{key}"
        host = f"s3.{self.region}.amazonaws.com"
        # A dot in the bucket's name would not fit the certificate.
        return f"https://{host}/{self.bucket}/{key}" if "." in self.bucket else f"https://{self.bucket}.{host}/{key}"


class S3Object:
    """A :class:`.compare_and_set.Document`. Its version is the ETag."""

    def __init__(
        self,
        name: str,
        place: S3Place,
        credentials: Credentials,
        client: HttpClient,
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._name = name
        self._url = place.url
        self._region = place.region
        self._credentials = credentials
        self._client = client
        self._time_ns = time_ns
        self.tested = False

    async def test(self) -> None:
        """Find out, on an object beside this one, whether the store refuses what it is to refuse.

        A store that does not know the conditions would ignore them, write all the same, and lose the fence.
        Raises :class:`ConfigurationError`, :class:`ResourceUnavailable`.
        """
        if self.tested:
            return
        await self._probe({"If-None-Match": "*"}, made=True)
        for condition in ({"If-None-Match": "*"}, {"If-Match": NO_SUCH_ETAG}):
            await self._probe(condition, made=False)
        self.tested = True

    async def _probe(self, condition: dict[str, str], *, made: bool) -> None:
        reply = await self._send("PUT", b"fencepost asks whether conditions are kept\n", condition, beside=".probe")
        if reply.status in (409, 412) or (made and reply.status == 200):
            return
        if reply.status in (200, 501):
            (header,) = condition
            raise ConfigurationError(
                f"resource {self._name!r}: {self._url} does not keep to {header} when an object is put, so it cannot "
                "hold a fence",
                next_step="use a store that has conditional writes: docs/resources.md",
            )
        raise self._unavailable(reply)

    async def read(self) -> Versioned:
        try:
            reply = await self._send("GET", b"", {})
        except AnswerLost as error:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._url} cannot be read: {error}",
                next_step="check the store and the way to it",
                outcome=Outcome.RETRY,
            ) from error
        if reply.status == 200 and reply.headers.get("ETag"):
            return Versioned(reply.body, reply.headers["ETag"])
        if reply.status == 404 and _code(reply) in ("NoSuchKey", ""):
            return Versioned(None, "")
        raise self._unavailable(reply)

    async def replace(self, data: bytes, before: str) -> str:
        condition = {"If-Match": before} if before else {"If-None-Match": "*"}
        reply = await self._send("PUT", data, {**condition, "Content-Type": "application/json"})
        if reply.status == 200 and reply.headers.get("ETag"):
            return reply.headers["ETag"]
        # 409: another one was being made. 404: the object was deleted since; reading tells.
        if reply.status in (409, 412) or (reply.status == 404 and _code(reply) == "NoSuchKey"):
            raise Conflict
        if reply.status == 200 or reply.status >= 500:
            raise AnswerLost(f"the store answered {reply.status} {_code(reply)}")
        raise self._unavailable(reply)

    async def _send(self, method: str, data: bytes, headers: dict[str, str], beside: str = "") -> Reply:
        parts = urlsplit(self._url + beside)
        all_headers = signed(
            method,
            parts.netloc,
            parts.path,
            headers,
            data,
            region=self._region,
            credentials=self._credentials,
            now_ns=self._time_ns(),
        )
        try:
            return await self._client.request(method, self._url + beside, headers=all_headers, content=data or None)
        except NotSent as error:
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self._url} cannot be reached: {error}",
                next_step="check the store and the way to it",
                outcome=Outcome.RETRY,
            ) from error
        except NoAnswer as error:
            raise AnswerLost(str(error)) from error

    def _unavailable(self, reply: Reply) -> ResourceUnavailable:
        message = _MESSAGE.search(reply.body)
        why = f"{reply.status} {_code(reply)} {message[1].decode(errors='replace') if message else ''}".rstrip()
        return ResourceUnavailable(
            f"resource {self._name!r}: {self._url} refuses: {why}",
            next_step="check bucket, region, credentials and the clock of this machine",
            outcome=Outcome.RETRY,
        )


def _code(reply: Reply) -> str:
    found = _CODE.search(reply.body)
    return found[1].decode() if found else ""
