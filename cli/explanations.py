"""The catalogue behind ``fencepost explain``: one paragraph for each error code."""

from __future__ import annotations

import importlib
import textwrap
from typing import Any

from ..raft.core.errors import all_errors
from .app import UsageProblem

_CATALOGUE: dict[str, tuple[str, str]] = {
    "INTERNAL": (
        "a bug of fencepost",
        """Something happened that the program did not foresee, so it cannot say whether the operation took place.
        Run the command again with -v and report the trace. A submission may be repeated with the same operation
        id: if the first one was committed, the answer is its stored result.""",
    ),
    "USAGE": (
        "the command line is wrong",
        """An option or argument is missing, unknown or malformed. Nothing was sent. The text names it; --help of
        the same command shows two examples that work.""",
    ),
    "CONFIG_INVALID": (
        "the configuration is wrong",
        """A configuration file, a --set flag or a FENCEPOST_ variable has values that cannot be used. Every problem
        is listed with file, line and key, and nothing was started or sent. Correct them and check with
        `fencepost node check-config FILE`.""",
    ),
    "STORAGE_FAILED": (
        "the data directory or its disk failed",
        """A write or a sync failed. The first failure is final for the process: the node stops, because a disk that
        has lost one write may report later ones as good. What was being written may or may not be in the log.
        Look at the disk and the system's log, then start the node again: it recovers from what is durable.""",
    ),
    "STORAGE_CORRUPT": (
        "the log is damaged",
        """A record fails its checksum and valid records follow it, or the log is shorter than what this node knew to
        be committed. A torn last record is repaired by itself; this is not one. The node refuses to start rather
        than forget what it has promised. Keep the directory for study; give the node a new, empty one only once
        the other nodes are healthy.""",
    ),
    "IDENTITY_MISSING": (
        "a data directory without its identity",
        """There is a log or a snapshot, and no file that says whose it is. To begin anew there would give up, under an
        old name, votes and entries that this node has promised to keep. Nothing was touched. Put the whole directory
        back as it was; otherwise the node is lost, and is replaced by one under a new name.""",
    ),
    "SNAPSHOT_DAMAGED": (
        "a saved snapshot is damaged",
        """Its size or a checksum is not what it was when it was saved, so it is not used. Nothing was changed. Take
        another copy or an older file; `fencepost snapshot inspect FILE` checks one.""",
    ),
    "SNAPSHOT_FOREIGN": (
        "not a saved snapshot",
        """The file does not begin like one that `fencepost snapshot save` writes. Files inside a data directory are not
        such files. Nothing was changed.""",
    ),
    "SNAPSHOT_EXISTS": (
        "the file exists",
        """A saved snapshot never takes the place of another file unasked. Nothing was written. Name another file, or
        add --force.""",
    ),
    "STATE_DIVERGED": (
        "the state of this node is another than that of the others",
        """All nodes apply the same entries, so after each of them all have the same state. Every thousand entries they
        compare digests of it. A majority of the voters agreed on another digest than this node's, so it gave up
        leadership and ended before anything more could rest on what it believes. Bad memory, a defect of the program
        or a state machine of one's own that is not deterministic can do that. It would find the same again. Keep its
        data directory for study, replace the node by one under a new name, and report what the message says.""",
    ),
    "STORAGE_FULL": (
        "the disk is full",
        """There is no room for the log. Nothing half-written stays, and the node gives up leadership. The node
        exits; free space or raise the quota, then start it again.""",
    ),
    "STORAGE_FORMAT_UNKNOWN": (
        "written by a newer version",
        """The data directory was written by a version whose format this one does not read. Nothing was touched.
        Install the newer version.""",
    ),
    "DIRECTORY_LOCKED": (
        "another process uses the data directory",
        """A data directory belongs to one running node at a time, and the operating system's lock is held. Find the
        other process (it may be stopped or still shutting down) before you start this one.""",
    ),
    "DIRECTORY_MISMATCH": (
        "that is not the data directory that was meant",
        """There is no data directory of fencepost at that path, or it is not the one it should be. Nothing was touched.
        Check the path.""",
    ),
    "DIRECTORY_OTHER_NODE": (
        "the data directory belongs to another node",
        """The directory was made for another node id than the one it was opened for. A node that took it over would
        vote twice, once under each name. Nothing was touched. Check `data_dir` and `node.id`, and which volume is
        mounted.""",
    ),
    "DIRECTORY_OTHER_CLUSTER": (
        "the data directory belongs to another cluster",
        """The directory carries another cluster id than the configuration. Starting it would mix two histories.
        Nothing was touched. Check `data_dir` and `cluster.id`.""",
    ),
    "DIRECTORY_OCCUPIED": (
        "there is something in the directory already",
        """A data directory is begun only in an empty or missing directory, and a snapshot is restored only into one.
        This one holds a data directory, or files that are none of fencepost's. Nothing was touched. Name another
        directory; if this one is to go, move it away yourself.""",
    ),
    "DIRECTORY_UNFINISHED": (
        "a restore or a forced recovery was cut short",
        """The directory is neither what it was nor yet what it is to be, so no node starts on it. Run the same command
        again: a restore starts over, a forced recovery goes on where it stopped.""",
    ),
    "TRANSPORT_FAILED": (
        "a connection failed",
        """A connection broke or could not be made. Nothing of this request was executed as far as it got; the same
        operation id may be tried again.""",
    ),
    "CONNECTION_LOST": (
        "a connection ended while a request was under way",
        """The node went away, or the network did, between request and answer. Clients go on with another node and the
        same operation id by themselves.""",
    ),
    "FRAME_INVALID": (
        "bytes that are not fencepost's protocol",
        """What arrived has a wrong magic number, version, length, checksum or body. Usually the address is that of
        another service, for instance a node's peer address where its client address is wanted.""",
    ),
    "HANDSHAKE_REFUSED": (
        "the two ends do not belong together",
        """The other end is not the node that was meant, or speaks another version, or an address was mixed up. The text
        says which. Nothing was exchanged beyond the greeting.""",
    ),
    "CLUSTER_MISMATCH": (
        "the two ends belong to different clusters",
        """The address leads to a node of another cluster, or the client was given another cluster's id. Nothing was
        exchanged beyond the greeting. Check the address and `cluster.id`.""",
    ),
    "INCARNATION_MISMATCH": (
        "the two ends are of different incarnations of the cluster",
        """A restore from a saved snapshot or a forced recovery begins a new incarnation, and one of the two missed it.
        They share the cluster id and not the history, so they refuse each other for good. Stop the one of the lower
        incarnation; it comes back with a data directory that is restored from the same file, or with an empty one, as
        a new member. A new member's file says `incarnation = …` under [cluster].""",
    ),
    "INSTANCE_CHANGED": (
        "a node came back with another data directory",
        """A data directory has a random instance id. This node id was met with another one before, so its disk was
        wiped or replaced, and votes and entries that it vouched for may be lost. It is refused under its old name. Put
        the old directory back as it was, or replace the node by one under a new name.""",
    ),
    "DIRECTORY_COPIED": (
        "two processes run on copies of one data directory",
        """Two processes showed the same node id and the same instance id, and not one after the other: a data directory
        was copied, or put back from an older copy of itself. Both would vote under one name. The second one was
        refused. Stop both, and keep the directory that was written to last.""",
    ),
    "NOT_A_MEMBER": (
        "the node was removed from the cluster",
        """A node that was taken out of the cluster greeted one that knows it. Its node id is never used again, so it
        is refused for good. Stop it; to come back it needs a node id that was never used and an empty data directory.
        Nothing was exchanged beyond the greeting.""",
    ),
    "ACKNOWLEDGED_LOST": (
        "a node has lost entries that it had acknowledged",
        """A leader counted on entries that this node had said were on its disk, and now they are not there: its data
        directory was put back to an older copy, or its disk lost what it had synced. The node was told so and stopped,
        since its votes and acknowledgements may no longer be believed. Stop it for good and replace it by a node under
        a new name, or put the directory back as it was last written to.""",
    ),
    "BOOTSTRAP_MISMATCH": (
        "two nodes were first started with different voters",
        """Both are of the same cluster id, and their data directories were made with different lists of voters.
        Majorities of different lists need not meet, so they refuse each other for good. Usually [peers] of one file
        was wrong at its first start, or a node that joins lacks `join = true`. Nothing was exchanged beyond the
        greeting.""",
    ),
    "NO_ENDPOINT": (
        "no node could be reached",
        """None of the endpoints answered, so nothing was committed. The lines say what each one did: `connection
        refused` means no process listens there, a timeout means the host or the network. Check --endpoints,
        FENCEPOST_ENDPOINTS and the client file, and that the nodes run.""",
    ),
    "NO_LEADER": (
        "no leader",
        """Nodes answered, but none of them leads or knows a leader, so nothing was committed. A majority of the
        voters must be up and reach one another. After a crash a new leader takes about an election timeout; if it
        lasts, start the nodes that are down. The same command may be repeated as it is.""",
    ),
    "NOT_LEADER": (
        "this node does not lead",
        """The request reached a follower. Nothing was committed. Clients follow the leader by themselves; seen by a
        person it means that leadership moved while the command ran. Repeat it.""",
    ),
    "BUSY": (
        "the leader has no room",
        """A limit on requests under way is reached. Nothing was committed. Repeat it with the same operation id, or
        send less at once (--window).""",
    ),
    "TOO_LARGE": (
        "an entry is larger than the log takes",
        """Nothing was committed. Put what is large somewhere else, and its address into the command.""",
    ),
    "CHANGE_REFUSED": (
        "that change of members is not possible",
        """Nothing was changed. The message says why: the node is a member already, was removed (ids are not used
        again), or no voter would be left. `fencepost member list` shows who is in the cluster.""",
    ),
    "TOKEN_MISSING": (
        "a write without a token was refused",
        """A fence is enforced, and the request showed no token, so nobody can tell whether its sender was replaced.
        Nothing was done. Send X-Fencepost-Cluster, X-Fencepost-Token (incarnation.term), X-Fencepost-Holder and an
        Idempotency-Key; a resource of kind http does so by itself.""",
    ),
    "MODE_REFUSED": (
        "the fence mode was not changed",
        """A resource goes from off to observe to enforce, one step at a time, and never back: who was refused once may
        have been told to rely on it. To enforce it must have been observed, with no write without a token for as long
        as --after says. `fencepost resource mode NAME` shows how many there were, and when the last one was.""",
    ),
    "MODE_UNSUPPORTED": (
        "a resource of that kind has no fence mode",
        """A mode is about writes of other programs, and at Redis, S3, files, plain HTTP APIs and Python functions
        nobody tells fencepost of them. A mode that counts nothing would say that there are none. The message says what
        to use instead: mostly, take the right to write from everybody else. SQLite, PostgreSQL and APIs behind
        `fencepost proxy` have modes.""",
    ),
    "NOT_CAUGHT_UP": (
        "the node cannot be made a voter yet",
        """A voter that lacks the log, or is not there, would cost the cluster its majority, so the node stays what
        it was: a learner. The message says how far behind it is and when it was last heard of. Start it, wait, and
        `fencepost member promote NODE`. For a removal: too few of the voters that would be left were heard of.""",
    ),
    "TRANSFER_REFUSED": (
        "leadership was not handed over",
        """The leader serves on. The message says why: no other voter was heard of lately, another transfer is under
        way, or the target did not take over in time. Repeat it, or name another node.""",
    ),
    "LEADERSHIP_LOST": (
        "leadership changed before the entry was committed",
        """Another leader's entry stands where this one would have been: it was certainly not committed. Repeat it
        with the same operation id.""",
    ),
    "OUTCOME_UNKNOWN": (
        "it may have been committed",
        """The request was sent and no definite answer came back in time. It may be in the log and may be executed.
        Only the same operation id is safe: `fencepost command show ID` says what became of it, and submitting it
        again with --id ID either joins the command that is running, or returns the stored result, or executes it
        for the first time. Never repeat it under a new id.""",
    ),
    "OPERATION_ID_REUSED": (
        "the operation id stands for something else",
        """The id was used before with another resource, effect, lane or payload. Nothing was executed and the first
        command is unchanged. Use a new id for a new operation; `fencepost command show ID` shows the first one.""",
    ),
    "OPERATION_ID_EXPIRED": (
        "the operation id is older than what is remembered",
        """Operation ids are remembered for a time and a number of them, those of commands (`[outbox] retention`) and
        those of a program's own proposals. This one carries its time (UUIDv7), and ids of that time have been
        forgotten: it may have been executed then. It was not executed now. Look at the resource, or read the state
        that it would have changed; if it is not there, submit it under a new id.""",
    ),
    "WRONG_STATE": (
        "the command is not in a state in which that can be done",
        """Nothing was changed. A command that has ended cannot be cancelled; only a dead letter is redriven or
        discarded; only what is in doubt is resolved, or a dead letter that was applied. `fencepost command show ID
        --history` says what it is and how it came to be that.""",
    ),
    "RESULT_LOST": (
        "it was executed, and its result cannot be given",
        """What the state machine or the effect gave back is too large, or cannot be encoded or read as the type that
        was declared. It was executed once, and is not executed again. Read the state itself, and have it give back
        less.""",
    ),
    "NOT_FOUND": (
        "there is no such thing",
        """No command has this operation id as far as the leader knows, or the name is unknown. If a submission of
        this id ended with an unknown outcome a moment ago, it may still be committed: submit it again with the
        same id.""",
    ),
    "COMMAND_INVALID": (
        "the command itself is malformed",
        """The payload is not JSON, a name is missing, or something is larger than its limit. Nothing was sent or
        appended. Correct it and submit again.""",
    ),
    "COMMAND_FAILED": (
        "committed, and ended without success",
        """The command is in the log and ended. FAILED: the resource refused it for good, for instance by a
        constraint, or somebody discarded it; the effect did not take place. DEAD: given up on, its attempts being used
        up or its deadline past; what may have been applied is in doubt instead. `fencepost command redrive` or
        `discard`. CANCELLED: somebody did not want it any more.
        `fencepost command show ID --history` lists the attempts with their errors.""",
    ),
    "CHECK_FAILED": (
        "something promised does not hold",
        """A check or a wait did not find what it was asked for. The text says what was found instead.""",
    ),
    "HISTORY_INVALID": (
        "a history that cannot be judged",
        """A file of recorded operations cannot be read, or holds what cannot have been: a line that is no JSON
        object, a field that is missing or of the wrong type, an operation that returns before it is invoked, two
        operations of one process at one key at a time. The text names file and line. It is no verdict on the system
        that was recorded: mend the recorder or the file, and check again.""",
    ),
    "STALE_LEADER": (
        "the resource has seen a higher token",
        """A node tried to write with the fencing token of a term that is over, and the resource refused it: this is
        fencing at work. It says nothing about the operation, which the present leader executes. The node that
        hears it stops dispatching and steps down.""",
    ),
    "DUPLICATE_GENERATION": (
        "two holders of one token",
        """Another node presented the same incarnation and term to the resource. In one cluster a term has one
        leader, so this means a double vote (a data directory that was copied or rolled back) or two clusters with
        one id. Stop both nodes and find out which directory is genuine.""",
    ),
    "WRONG_CLUSTER": (
        "the resource is fenced by another cluster",
        """The fence in the resource belongs to another cluster id. Tokens of different clusters are never compared.
        Either the path or address is wrong, or the resource must be released from the other cluster first.""",
    ),
    "RESOURCE_UNAVAILABLE": (
        "the resource could not be reached",
        """The protected resource did not answer, so nothing is known about an effect under way there. Commands wait
        and are tried again; other resources go on. `fencepost resource fences` shows which one it is.""",
    ),
    "EFFECT_RETRYABLE": (
        "a handler asks for another attempt",
        """A python handler said that its effect definitely did not take place this time. The command is tried again
        after a pause, up to the resource's max_attempts.""",
    ),
    "EFFECT_PERMANENT": (
        "a handler says that it will never work",
        """A python handler said that its effect definitely did not take place and that trying again is useless. The
        command is FAILED.""",
    ),
    "COMMITTED_CONFLICT": (
        "a leader lacks what this node knows to be committed",
        """Every leader has what is committed, unless nodes that had acknowledged it came back without it and elected
        one that never had it. What this node has applied is not what the others will apply, so it stops rather than
        go on with another history. Acknowledged commands are lost on one of the two sides.""",
    ),
    "UNKNOWN_ENTRY": (
        "an entry of a newer version is in the log",
        """A committed entry has a kind or format that this version cannot apply. The node stops before it, because
        skipping it would let the nodes diverge. Install the version that wrote it.""",
    ),
}


def _catalogue() -> dict[str, tuple[str, str]]:
    return {code: (title, " ".join(textwrap.dedent(text).split())) for code, (title, text) in _CATALOGUE.items()}


EXPLANATIONS: dict[str, tuple[str, str]] = _catalogue()
"""By code: a title, and a paragraph."""


def describe(code: str) -> dict[str, Any]:
    """``{"code", "title", "outcome", "exit_code", "text"}``."""
    title, text = EXPLANATIONS[code]
    # Some classes live with the part that raises them.
    importlib.import_module("..transport.client_link", __package__)
    importlib.import_module("..raft.effects.handlers", __package__)
    kind = all_errors().get(code, UsageProblem)
    return {
        "code": code,
        "title": title,
        "outcome": kind.outcome.value,
        "exit_code": kind.exit_code,
        "text": text,
    }
