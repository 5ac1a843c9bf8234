"""How strictly a resource treats writes without a token: off, then observe, then enforce, and never back.

A write with a token is compared in every mode, from the first one on. The mode is about the others: writes of programs
that reach the resource beside fencepost and show no token (concepts: Writes beside fencepost).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..core.errors import CommandInvalid, FencepostError, ModeRefused, ModeUnsupported, NotFound, NotLeader
from ..core.token import FencingToken
from ..ports import Resource
from .authority import Authority
from .runtime import EffectsRuntime


class FenceMode(StrEnum):
    OFF = "off"
    """Nobody looks for writes without a token."""
    OBSERVE = "observe"
    """They are applied and counted."""
    ENFORCE = "enforce"
    """They are refused."""

    @property
    def rank(self) -> int:
        return list(FenceMode).index(self)


class ModeReport(NamedTuple):
    """What a resource says of its mode. Times are nanoseconds since the Unix epoch, 0 for never."""

    mode: FenceMode
    since_ns: int
    """When it came into this mode."""
    observed_ns: int
    """When anybody began to look."""
    unfenced: int
    """Rows, statements or requests that were applied without a token: which of them, the kind says (concepts)."""
    would_reject: int
    """Of what was applied, what ``enforce`` would have refused."""
    last_unfenced_ns: int
    guarded: list[str]
    """The tables, or the like, that are looked at."""
    unguarded: list[str]
    """Those that effects write to, and that cannot be."""


OFF = ModeReport(FenceMode.OFF, 0, 0, 0, 0, 0, [], [])


@runtime_checkable
class ModalResource(Protocol):
    """A resource that can tell a write without a token from its own. Called on the effects loop."""

    @property
    def mode_seen(self) -> ModeReport | None:
        """As it was when this process last looked, from any thread. None where this one has no modes."""

    async def mode(self) -> ModeReport: ...

    async def set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        """One step further. Under the fence: raises what ``execute`` raises, and :class:`ModeRefused` for a step back,
        one too far, or one to ``enforce`` with a write without a token in the last ``quiet_ns``."""


class _Reason(NamedTuple):
    why: str
    instead: str


WHY_NOT = {
    "redis": _Reason(
        "a Redis server runs no code of ours when others write",
        "give the resource's keys to one user: ACL SETUSER others ~... without them; fencepost's alone may write there",
    ),
    "s3": _Reason(
        "an object that somebody else has put holds no fence and no counts: the next command finds it and stops there, "
        "and nothing is left to count in",
        "let the bucket's policy give s3:PutObject and s3:DeleteObject on the object to the role of the nodes alone",
    ),
    "file": _Reason(
        "a file system tells nobody who writes",
        "let the rights of the folder refuse every user but that of the nodes",
    ),
    "http": _Reason(
        "what reaches an API beside this cluster is seen by the API alone",
        "put `fencepost proxy` in front of it and set proxied = true: docs/resources.md",
    ),
    "python": _Reason(
        "what its functions write to is not known here",
        "have the functions hand their token and operation id on to a place that compares them",
    ),
}
"""By kind: why writes without a token cannot be seen there, and what can be done."""


def modal(resource: Resource) -> ModalResource | None:
    """The resource, if it has modes: some kinds have them only in some configurations."""
    if not isinstance(resource, ModalResource) or resource.mode_seen is None:
        return None
    return resource


def check_step(name: str, found: ModeReport, wanted: FenceMode, quiet_ns: int, now_ns: int) -> bool:
    """Whether there is anything to do. Raises :class:`ModeRefused`. To be called inside the atomic step."""
    if wanted is found.mode:
        return False
    if wanted.rank < found.mode.rank:
        raise ModeRefused(
            f"resource {name!r} is in mode {found.mode}, and there is no way back to {wanted}",
            next_step="nothing: whoever wrote without a token under enforce was refused and may rely on nothing else",
        )
    if wanted.rank > found.mode.rank + 1:
        raise ModeRefused(
            f"resource {name!r} is in mode {found.mode}: nobody knows yet who writes there without a token",
            next_step=f"fencepost resource mode {name} observe",
        )
    # Not below 0: the write may have been stamped by a server whose clock is ahead of this one.
    quiet_for_ns = max(now_ns - max(found.observed_ns, found.last_unfenced_ns), 0)
    if wanted is FenceMode.ENFORCE and quiet_for_ns < quiet_ns:
        what = "the last write without a token was" if found.last_unfenced_ns else "observed for only"
        seconds = quiet_for_ns / 1e9
        raise ModeRefused(
            f"resource {name!r}: {what} {seconds:.0f} s{' ago' if found.last_unfenced_ns else ''}, and "
            f"{quiet_ns / 1e9:.0f} s without one are asked for; {found.unfenced} were counted so far",
            next_step="find who writes beside fencepost, or shorten --after if you know them",
        )
    return True


def mode_json(report: ModeReport) -> dict[str, Any]:
    return {
        "mode": report.mode.value,
        "since_ns": report.since_ns or None,
        "observed_ns": report.observed_ns or None,
        "unfenced": report.unfenced,
        "would_reject": report.would_reject,
        "last_unfenced_ns": report.last_unfenced_ns or None,
        "guarded": report.guarded,
        "unguarded": report.unguarded,
    }


def seen_json(resource: Resource) -> dict[str, Any] | None:
    """The mode as this process last saw it; None for a resource without modes."""
    found = modal(resource)
    seen = None if found is None else found.mode_seen
    return None if seen is None else mode_json(seen)


class ModeCalls:
    """``resource.mode``: shows the mode of a resource, and with ``mode`` takes it one step further."""

    def __init__(
        self,
        resources: Mapping[str, Resource],
        runtime: EffectsRuntime,
        authority: Callable[[], Authority | None],
        time_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._resources = resources
        self._runtime = runtime
        self._authority = authority
        self._time_ns = time_ns

    def methods(self) -> dict[str, Callable[[dict[str, Any], Callable[[Any, FencepostError | None], None]], None]]:
        return {"resource.mode": self.mode}

    def mode(self, parameters: dict[str, Any], reply: Callable[[Any, Any], None]) -> None:
        name = str(parameters.get("resource", ""))
        resource = self._resources.get(name)
        if resource is None:
            raise NotFound(f"this node has no resource {name!r}", next_step="fencepost resource fences")
        found = modal(resource)
        if found is None:
            known = WHY_NOT.get(resource.kind, _Reason("its kind does not say", "see docs/concepts.md"))
            raise ModeUnsupported(
                f"resource {name!r} is of kind {resource.kind} and has no mode: {known.why}", next_step=known.instead
            )
        wanted = str(parameters.get("mode") or "")
        quiet_ns = int(parameters.get("quiet_ns") or 0)
        authority = self._authority()
        if wanted and wanted not in (FenceMode.OBSERVE.value, FenceMode.ENFORCE.value):
            raise CommandInvalid(f"no mode {wanted!r}", next_step="observe or enforce")
        if wanted and (authority is None or authority.revoked):
            raise NotLeader("only a leader that holds the resource's fence can change its mode", next_step="ask again")

        async def ask() -> ModeReport:
            await resource.open()
            if not wanted or authority is None:
                return await found.mode()
            return await found.set_mode(authority.token, authority.holder, FenceMode(wanted), quiet_ns)

        self._runtime.run(ask, partial(self._answered, reply, name))

    def _answered(
        self, reply: Callable[[Any, Any], None], name: str, report: ModeReport | None, error: BaseException | None
    ) -> None:
        if error is not None or report is None:
            reply(None, error)
            return
        reply({"resource": name, "now_ns": self._time_ns(), **mode_json(report)}, None)
