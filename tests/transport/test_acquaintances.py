"""Copies of one data directory, and nodes of another incarnation: told apart and refused (S21, S57)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from fencepost.raft.core.errors import (
    ClusterMismatch,
    DirectoryCopied,
    HandshakeRefused,
    IncarnationMismatch,
    InstanceChanged,
)
from fencepost.transport.acquaintances import Acquaintances
from fencepost.transport.handshake import LocalNode, hello_to_peer, welcome_to_client, welcome_to_peer

from .samples import local_node

N1 = local_node("n1")


def n2(boot: int, process: str) -> LocalNode:
    return local_node("n2")._replace(boot=boot, process=process)


def acquaintances() -> Acquaintances:
    return Acquaintances(N1, {}, None, None)


def meet(known: Acquaintances, node: LocalNode, *, dialled: bool = False) -> None:
    if dialled:
        known.welcomed(node.node_id, welcome_to_peer(node))
    else:
        known.greeted(hello_to_peer(node, "n1"))


@pytest.mark.parametrize("first_dialled", [False, True])
@pytest.mark.parametrize("second_dialled", [False, True])
def test_s57_a_second_process_over_a_copy_is_refused_and_the_first_goes_on(
    first_dialled: bool, second_dialled: bool
) -> None:
    known = acquaintances()
    meet(known, n2(6, "aaaa"), dialled=first_dialled)
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(DirectoryCopied, match="two processes run on copies of one data directory") as caught:
                meet(known, n2(6, "bbbb"), dialled=second_dialled)
    assert "bbbb" in caught.value.message
    assert "aaaa" in caught.value.message
    assert [(line["event"], line["log_level"]) for line in lines] == [("directory_copied", "error")]
    meet(known, n2(6, "aaaa"), dialled=second_dialled)


def test_a_restart_is_no_copy() -> None:
    known = acquaintances()
    for boot, process in ((1, "aaaa"), (2, "bbbb"), (7, "cccc"), (7, "cccc")):
        meet(known, n2(boot, process))


def test_s21_an_older_copy_of_the_directory_is_refused() -> None:
    """A machine that was rolled back: it has forgotten how often it was opened since."""
    known = acquaintances()
    meet(known, n2(7, "aaaa"))
    with pytest.raises(DirectoryCopied, match="an older copy of its data directory"):
        meet(known, n2(5, "bbbb"))


def test_a_copy_that_was_started_more_often_makes_the_other_one_the_older() -> None:
    known = acquaintances()
    meet(known, n2(6, "aaaa"))
    meet(known, n2(7, "bbbb"))  # As a restart would come.
    with pytest.raises(DirectoryCopied):
        meet(known, n2(6, "aaaa"))


def test_who_does_not_say_which_process_it_is_is_judged_by_the_rest_alone() -> None:
    known = acquaintances()
    meet(known, n2(6, "aaaa"))
    meet(known, n2(0, ""))


def test_clients_are_not_told() -> None:
    welcome = welcome_to_client(n2(6, "aaaa"))
    assert (welcome.boot, welcome.process) == (0, "")


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"cluster_id": "other"}, ClusterMismatch),
        ({"incarnation": 2}, IncarnationMismatch),
        ({"instance_id": "other"}, InstanceChanged),
    ],
)
def test_each_reason_has_a_code_of_its_own(changed: dict[str, object], kind: type[HandshakeRefused]) -> None:
    known = acquaintances()
    meet(known, n2(1, "aaaa"))
    for dialled in (False, True):
        with pytest.raises(HandshakeRefused) as caught:
            meet(known, n2(2, "bbbb")._replace(**changed), dialled=dialled)  # type: ignore[arg-type]
        assert type(caught.value) is kind
        assert caught.value.next_step
