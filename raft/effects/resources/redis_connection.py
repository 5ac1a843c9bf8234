"""One connection to a Redis or Valkey server, and what the server says about keeping what it is told."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from ...core.errors import ConfigurationError, Outcome, ResourceUnavailable


class RedisConnection:
    """One request at a time. Made anew by :meth:`open` when it was lost, and never silently in between: whoever
    answers next may be another server, and is asked first what it promises."""

    def __init__(self, name: str, url: str, *, connect_ns: int, answer_ns: int, assume_durable: bool) -> None:
        self._name = name
        self._url = url
        self._connect_s = connect_ns / 1e9
        self._answer_s = answer_ns / 1e9
        self._assume_durable = assume_durable
        self._connection: Any = None
        self.place = _place(url)
        """Where the server is, without the password."""
        self.shortfall = "the server has not been asked yet"
        """Why an acknowledged write may be lost by this server; empty if it is not."""
        self.replicas = 0

    async def open(self) -> None:
        """Connect and ask, if not connected. Raises :class:`ConfigurationError` or :class:`ResourceUnavailable`."""
        if self._connection is not None:
            return
        try:
            self._connection = self._make()
            async with asyncio.timeout(self._connect_s):
                await self._connection.connect()
            await self.examine()
        except BaseException as error:
            await self.drop()
            raise self.told(error, "cannot be reached", Outcome.RETRY) from error

    def _make(self) -> Any:
        try:
            from redis.asyncio import ConnectionPool
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise ConfigurationError(
                f"resource {self._name!r} is of kind redis, and the redis library is not installed",
                next_step="pip install 'fencepost[redis]'",
            ) from error
        try:
            pool: Any = ConnectionPool.from_url(
                self._url,
                retry=Retry(NoBackoff(), 0),
                socket_connect_timeout=self._connect_s,
                socket_timeout=None,
                decode_responses=False,
            )
            # Only for what it makes of the address: a pool would connect anew without a word.
            return pool.make_connection()
        except ValueError:
            # The library's words may quote the address, and with it the password.
            raise ConfigurationError(
                f"resource {self._name!r}: its url is not one of Redis",
                next_step=f"redis://user:password@host:6379/0, in url_env of [resources.{self._name}]",
            ) from None

    async def examine(self) -> None:
        """Ask the server what it is and how it keeps its data; sets ``shortfall``."""
        told = await self._info()
        if told.get("role") != "master":
            raise ResourceUnavailable(
                f"resource {self._name!r}: {self.place} is a replica and takes no writes",
                next_step="name the primary in its url",
                outcome=Outcome.RETRY,
            )
        if told.get("cluster_enabled") == "1":
            raise ConfigurationError(
                f"resource {self._name!r}: {self.place} is a node of a Redis Cluster, which is not supported",
                next_step="use a server of its own for fenced data",
            )
        self.replicas = int(told.get("connected_slaves", "0"))
        self.shortfall = await self._shortfall()

    async def _info(self) -> dict[str, str]:
        text = (await self.call("INFO")).decode(errors="replace")
        lines = (line.partition(":") for line in text.splitlines() if ":" in line)
        return {key: value for key, _, value in lines}

    async def _shortfall(self) -> str:
        settings: dict[str, str] = {}
        try:
            for wanted in ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy"):
                reply = await self.call("CONFIG", "GET", wanted)
                # A list in the second version of the protocol, a table in the third.
                pairs = reply.items() if isinstance(reply, dict) else zip(reply[0::2], reply[1::2], strict=True)
                settings.update({key.decode(): value.decode() for key, value in pairs})
        except Exception as error:
            if not _is_answer(error):
                raise
            if self._assume_durable:
                return ""
            return (
                f"the server does not say how it keeps its data ({error}); if it syncs every write, "
                "assume_durable = true says so"
            )
        if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy", "").startswith("allkeys"):
            raise ConfigurationError(
                f"resource {self._name!r}: {self.place} evicts keys when its memory is full "
                f"(maxmemory-policy {settings['maxmemory-policy']}), and with them the fence",
                next_step="set maxmemory-policy noeviction there, or use a server of its own",
            )
        if settings.get("appendonly") != "yes":
            return f"appendonly is {settings.get('appendonly', 'unknown')}: a crash of the server loses what it said"
        if settings.get("appendfsync") != "always":
            return (
                f"appendfsync is {settings.get('appendfsync', 'unknown')} and not always: a crash loses the last writes"
            )
        return ""

    # -- using -------------------------------------------------------------------------------------

    async def call(self, *words: Any) -> Any:
        """One command and its answer. Raises what the server answered (redis.ResponseError), or what broke."""
        connection = self._connection
        async with asyncio.timeout(self._answer_s):
            await connection.send_command(*words)
            return await connection.read_response()

    async def act(self, *words: Any) -> Any:
        """The same for a script that writes.

        Raises :class:`ResourceUnavailable`, with outcome ``retry`` where the server refused to begin and
        ``unknown`` where no answer came, and ResponseError of NOSCRIPT.
        """
        await self.open()
        try:
            return await self.call(*words)
        except BaseException as error:
            if _is_answer(error) and str(error).upper().startswith(("NOSCRIPT", "NO MATCHING SCRIPT")):
                raise
            await self.drop()
            outcome = Outcome.RETRY if _is_answer(error) else Outcome.UNKNOWN
            raise self.told(error, "fails", outcome) from error

    def told(self, error: BaseException, what: str, outcome: Outcome) -> BaseException:
        """Cancellation and our own errors as they are; the rest in our words, without the password."""
        if isinstance(error, ConfigurationError | ResourceUnavailable) or not isinstance(error, Exception):
            return error
        why = str(error) or type(error).__name__
        if (
            why.upper().startswith(("WRONGPASS", "NOAUTH", "INVALID USERNAME"))
            or "AUTH" in type(error).__name__.upper()
        ):
            return ConfigurationError(
                f"resource {self._name!r}: {self.place} refuses the connection: {why}",
                next_step=f"check url or url_env under [resources.{self._name}]",
            )
        return ResourceUnavailable(
            f"resource {self._name!r}: {self.place} {what}: {why}",
            next_step="check the server and the way to it",
            outcome=outcome,
        )

    async def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _is_answer(error: BaseException) -> bool:
    """Whether the server answered, and with an error."""
    from redis.exceptions import ConnectionError as Lost
    from redis.exceptions import ResponseError

    return isinstance(error, ResponseError) and not isinstance(error, Lost)


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        where = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the server"
    return f"{where}{parts.path}" if where or parts.path else "the server"
