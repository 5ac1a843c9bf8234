"""The HTTP client of the resources that need one, and what its errors say about a request."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx


class NotSent(Exception):
    """The request certainly did not reach the other side."""


class NoAnswer(Exception):
    """The request was sent, or a part of it, and no whole answer came."""


class TooLarge(NoAnswer):
    """The answer is larger than its bound. The rest was not read."""


class Reply:
    """An answer that was read to its end, or to its bound."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        """Names in any case."""
        self.body = body


class HttpClient:
    """Follows no redirect, takes no proxy and no password from the environment, and retries nothing by itself."""

    def __init__(
        self, name: str, kind: str, url: str, *, connect_ns: int, answer_ns: int, connections: int, body_bytes_max: int
    ) -> None:
        self._name = name
        self._kind = kind
        self._tls = not url.startswith("http://")
        self._connect_s = connect_ns / 1e9
        self._answer_s = answer_ns / 1e9
        self._connections = connections
        self._body_bytes_max = body_bytes_max
        self._client: httpx.AsyncClient | None = None

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def open(self) -> None:
        """Raises :class:`ConfigurationError` where the library is missing."""
        try:
            import httpx
        except ImportError as error:
            raise ConfigurationError(
                f"resource {self._name!r} is of kind {self._kind}, and the httpx library is not installed",
                next_step=f"pip install 'fencepost[{self._kind}]'",
            ) from error
        self._client = self._client or httpx.AsyncClient(
            # Reading the system's authorities takes its time, and without TLS nobody asks for them.
            verify=ssl.create_default_context() if self._tls else False,
            trust_env=False,
            follow_redirects=False,
            # A compressed answer could grow without bound while it is unpacked, and carries a weak ETag.
            headers={"Accept-Encoding": "identity", "User-Agent": "fencepost"},
            timeout=httpx.Timeout(self._answer_s, connect=self._connect_s),
            limits=httpx.Limits(max_connections=self._connections, max_keepalive_connections=self._connections),
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, whole: bool = True
    ) -> Reply:
        """One request and its answer, within the bounds of time and size.

        Raises :class:`NotSent` or :class:`NoAnswer`; :class:`TooLarge` only if ``whole`` is asked for, else the answer
        is cut.
        """
        import asyncio

        import httpx

        if self._client is None:
            raise NotSent("not open")
        # Bytes: the library takes a text for ASCII, and raises what is none of its errors.
        told = {name.encode("ascii"): value.encode("latin-1") for name, value in headers.items()}
        try:
            # The library bounds each wait; this bounds all of them, so that a slow drip is no answer.
            async with asyncio.timeout(self._connect_s + self._answer_s):
                async with self._client.stream(method, url, headers=told, content=content) as response:
                    body = await self._read(response, whole)
                return Reply(response.status_code, response.headers, body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise NotSent(_text(error)) from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise NoAnswer(_text(error)) from error

    async def _read(self, response: Any, whole: bool) -> bytes:
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > self._body_bytes_max:
                if whole:
                    raise TooLarge(f"the answer is larger than {self._body_bytes_max} bytes")
                return bytes(body[: self._body_bytes_max])
        return bytes(body)


def _text(error: BaseException) -> str:
    # The library's texts name no header and no body.
    return str(error) or type(error).__name__
