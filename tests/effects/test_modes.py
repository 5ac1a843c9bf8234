"""``resource.mode``: which resources have a mode, who may change it, and what the others are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.raft.core.errors import CommandInvalid, FencepostError, ModeUnsupported, NotFound, NotLeader
from fencepost.raft.core.token import FencingToken
from fencepost.raft.effects.authority import Authority
from fencepost.raft.effects.modes import OFF, WHY_NOT, FenceMode, ModeCalls, ModeReport, modal, seen_json

from ..core.planting import planted


class Plain:
    """A resource of a kind that cannot."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def open(self) -> None: ...


class Modal(Plain):
    mode_seen: ModeReport | None = OFF

    async def mode(self) -> ModeReport:
        return OFF

    async def set_mode(self, token: FencingToken, holder: str, mode: FenceMode, quiet_ns: int) -> ModeReport:
        self.asked = (token, holder, mode, quiet_ns)
        return OFF._replace(mode=mode)


class Now:
    """Runs what it is given at once."""

    def run(self, work: Callable[[], Awaitable[Any]], done: Callable[[Any, BaseException | None], None]) -> None:
        made = work()
        try:
            made.send(None)  # type: ignore[attr-defined]
        except StopIteration as ended:
            done(ended.value, None)


def calls(resource: Any, authority: Authority | None = None) -> ModeCalls:
    return ModeCalls({"r": resource}, Now(), lambda: authority, lambda: 7)  # type: ignore[arg-type]


def leading() -> Authority:
    return Authority(FencingToken(1, 2), "n1", lambda: True)


def ask(made: ModeCalls, **parameters: Any) -> dict[str, Any]:
    heard: list[Any] = []
    made.mode({"resource": "r", **parameters}, lambda body, error: heard.append((body, error)))
    ((body, error),) = heard
    assert error is None
    return dict(body)


@pytest.mark.parametrize("kind", sorted(WHY_NOT))
@pytest.mark.parametrize("wanted", ["", "observe"])
def test_a_kind_that_cannot_see_others_says_why_and_what_to_use_instead(kind: str, wanted: str) -> None:
    with pytest.raises(ModeUnsupported, match=f"is of kind {kind} and has no mode: {WHY_NOT[kind].why[:20]}") as told:
        ask(calls(Plain(kind)), mode=wanted)
    assert (told.value.code, told.value.next_step) == ("MODE_UNSUPPORTED", WHY_NOT[kind].instead)
    assert seen_json(Plain(kind)) is None  # type: ignore[arg-type]


def test_one_of_a_kind_that_can_may_lack_what_it_takes() -> None:
    resource = Modal("http")
    resource.mode_seen = None
    with pytest.raises(ModeUnsupported, match="is of kind http"):
        ask(calls(resource))
    assert seen_json(resource) is None  # type: ignore[arg-type]


def test_who_leads_changes_it_and_everybody_may_read() -> None:
    resource = Modal("sqlite")
    assert ask(calls(resource))["mode"] == "off"
    for authority in (None, leading()):
        if authority is not None:
            authority.revoke()
        with pytest.raises(NotLeader):
            ask(calls(resource, authority), mode="observe")
    assert ask(calls(resource, leading()), mode="observe", quiet_ns=5)["now_ns"] == 7
    assert resource.asked == (FencingToken(1, 2), "n1", FenceMode.OBSERVE, 5)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [({"resource": "x"}, NotFound), ({"mode": "off"}, CommandInvalid), ({"mode": "loud"}, CommandInvalid)],
)
def test_what_makes_no_sense_is_refused(parameters: dict[str, Any], error: type[FencepostError]) -> None:
    with pytest.raises(error):
        ask(calls(Modal("sqlite"), leading()), **parameters)


def any_kind_that_cannot() -> None:
    test_a_kind_that_cannot_see_others_says_why_and_what_to_use_instead("s3", "")


@pytest.mark.parametrize(
    ("function", "line", "fault", "test"),
    [
        (modal, " or resource.mode_seen is None", "", test_one_of_a_kind_that_can_may_lack_what_it_takes),
        (modal, "not isinstance(resource, ModalResource)", "resource.kind != 's3'", any_kind_that_cannot),
        (ModeCalls.mode, "next_step=known.instead", "next_step=''", any_kind_that_cannot),
        (ModeCalls.mode, " or authority.revoked", "", test_who_leads_changes_it_and_everybody_may_read),
        (ModeCalls.mode, "authority is None or ", "authority and ", test_who_leads_changes_it_and_everybody_may_read),
        (seen_json, "None if found is None else", "", any_kind_that_cannot),
    ],
)
def test_a_planted_fault_is_seen(function: Callable[..., Any], line: str, fault: str, test: Callable[[], None]) -> None:
    with planted(function, line, fault), pytest.raises((Exception, pytest.fail.Exception)):
        test()
