"""Authority to act: an object bound to one term (concepts: From winning an election to acting)."""

from __future__ import annotations

from collections.abc import Callable

from ..core.token import FencingToken


class Authority:
    """The right of one leader, in one term, to touch resources.

    Checked at call time, before each send. Once revoked it is never valid again; a new term makes
    a new object. It makes refusals rare. What makes them *happen* is the fence at the resource.
    """

    __slots__ = ("_holds_lease", "_revoked", "holder", "token")

    def __init__(self, token: FencingToken, holder: str, holds_lease: Callable[[], bool]) -> None:
        """``holds_lease()`` says whether this node still leads ``token.term`` and has heard a quorum."""
        self.token = token
        self.holder = holder
        self._holds_lease = holds_lease
        self._revoked = False

    @property
    def revoked(self) -> bool:
        return self._revoked

    def valid(self) -> bool:
        return not self._revoked and self._holds_lease()

    def revoke(self) -> None:
        self._revoked = True
