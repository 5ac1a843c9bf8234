"""The error tree. An error is a value: the same object is raised, printed and sent.

    FencepostError
      ConfigurationError     the operator's file or flags              refused
      StorageError           the data directory or the disk            unknown once running, else refused
      TransportError         frames, handshakes, connections           retry
      ClientError            what a submitter hears                    refused, retry or unknown
      FenceError             a protected resource said no              refused

Every error says whether the thing may have happened (concepts: The four answers), what was tried, and what
to do next. Codes are stable; ``fencepost explain CODE`` tells more about each.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar


class Outcome(StrEnum):
    """Whether the operation happened. When in doubt: unknown."""

    REFUSED = "refused"
    """Certainly not executed, and asking again will not help as it stands."""
    RETRY = "retry"
    """Certainly not executed now; the same operation id may be tried again."""
    UNKNOWN = "unknown"
    """May have been executed; only the same operation id is safe."""


class FencepostError(Exception):
    """Base of all errors that fencepost raises on purpose.

    ``code`` is stable. ``tried`` are lines that say what was tried and what each place answered.
    ``next_step`` is the command to type or the thing to change.
    """

    code: ClassVar[str] = "INTERNAL"
    outcome: Outcome = Outcome.UNKNOWN
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        tried: Sequence[str] = (),
        next_step: str = "",
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.tried = tuple(tried)
        self.next_step = next_step
        if outcome is not None:
            self.outcome = outcome

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON: ``{"code", "message", "outcome", "tried", "next"}``."""
        return {
            "code": self.code,
            "message": self.message,
            "outcome": self.outcome.value,
            "tried": list(self.tried),
            "next": self.next_step,
        }


class ConfigurationError(FencepostError):
    """Something in a file or a flag is wrong. Nothing was started."""

    code = "CONFIG_INVALID"
    outcome = Outcome.REFUSED
    exit_code = 2


class StorageError(FencepostError):
    """The disk failed under a running node, or a data directory could not be used."""

    code = "STORAGE_FAILED"
    outcome = Outcome.UNKNOWN
    exit_code = 1


class StorageCorrupt(StorageError):
    """Damage that is not a torn tail: named by file, offset and index, and never repaired."""

    code = "STORAGE_CORRUPT"
    outcome = Outcome.REFUSED
    exit_code = 8


class IdentityMissing(StorageCorrupt):
    """A data directory was in use and does not say any more whose it was: nothing is begun anew over it."""

    code = "IDENTITY_MISSING"


class SnapshotDamaged(StorageCorrupt):
    """A saved snapshot is not as it was saved. Nothing was changed."""

    code = "SNAPSHOT_DAMAGED"


class SnapshotForeign(StorageError):
    """A file that is no saved snapshot, or not one of what it is to be used for. Nothing was changed."""

    code = "SNAPSHOT_FOREIGN"
    outcome = Outcome.REFUSED
    exit_code = 2


class SnapshotExists(StorageError):
    """A file of that name is there, and is not replaced unasked."""

    code = "SNAPSHOT_EXISTS"
    outcome = Outcome.REFUSED
    exit_code = 6


class StateMiscounted(StorageCorrupt):
    """A snapshot is as it was written, and holds another state than the one that it was taken of."""


class StateDiverged(FencepostError):
    """This node's state is another than that of a majority, after the same entries. It stops (S59)."""

    code = "STATE_DIVERGED"
    outcome = Outcome.UNKNOWN
    exit_code = 8


class StorageFull(StorageError):
    """No space was left. Nothing half-written stays; the node starts again once there is space."""

    code = "STORAGE_FULL"


class StorageFormatUnknown(StorageError):
    """A file of a newer version than this program reads. Nothing was touched."""

    code = "STORAGE_FORMAT_UNKNOWN"
    outcome = Outcome.REFUSED
    exit_code = 2


class DirectoryLocked(StorageError):
    """Another process has the data directory open."""

    code = "DIRECTORY_LOCKED"
    outcome = Outcome.REFUSED
    exit_code = 2


class DirectoryMismatch(StorageError):
    """The directory is not the one that was meant. Base of those that say how; by itself: it is none of ours."""

    code = "DIRECTORY_MISMATCH"
    outcome = Outcome.REFUSED
    exit_code = 2


class DirectoryOfOtherNode(DirectoryMismatch):
    """The directory belongs to another node."""

    code = "DIRECTORY_OTHER_NODE"


class DirectoryOfOtherCluster(DirectoryMismatch):
    """The directory belongs to another cluster."""

    code = "DIRECTORY_OTHER_CLUSTER"


class DirectoryOccupied(DirectoryMismatch):
    """Something is to be begun in a directory that holds something already. Nothing was touched."""

    code = "DIRECTORY_OCCUPIED"


class DirectoryUnfinished(StorageError):
    """A restore or a forced recovery of the directory was cut short, and has to be run again."""

    code = "DIRECTORY_UNFINISHED"
    outcome = Outcome.REFUSED
    exit_code = 2


class TransportError(FencepostError):
    """Something went wrong between two processes. Nothing is known beyond that."""

    code = "TRANSPORT_FAILED"
    outcome = Outcome.RETRY
    exit_code = 3


class FrameInvalid(TransportError):
    """Bytes that are no frame of ours: wrong magic, version, length, checksum or body."""

    code = "FRAME_INVALID"


class HandshakeRefused(TransportError):
    """The two ends do not belong together. ``code`` in the text says why."""

    code = "HANDSHAKE_REFUSED"
    outcome = Outcome.REFUSED


class BootstrapMismatch(HandshakeRefused):
    """Two nodes of one cluster id were first started with different voters: two clusters under one name."""

    code = "BOOTSTRAP_MISMATCH"


class ClusterMismatch(HandshakeRefused):
    """The two ends belong to different clusters."""

    code = "CLUSTER_MISMATCH"


class IncarnationMismatch(HandshakeRefused):
    """The two ends are of different incarnations: one of them missed a restore or a forced recovery."""

    code = "INCARNATION_MISMATCH"


class InstanceChanged(HandshakeRefused):
    """A node came with another data directory than it was met with: the disk was wiped or replaced (S21)."""

    code = "INSTANCE_CHANGED"


class DirectoryCopied(HandshakeRefused):
    """Two processes run on copies of one data directory, or one runs on an older copy of it."""

    code = "DIRECTORY_COPIED"


class AcknowledgedLost(HandshakeRefused):
    """A node's log ends before what it had acknowledged: an older copy of its directory, or a disk that lied (S21)."""

    code = "ACKNOWLEDGED_LOST"
    exit_code = 8


class ClientError(FencepostError):
    """Base of what a submitter hears."""


class NoEndpoint(ClientError):
    """No endpoint could be reached within the deadline. Nothing was sent."""

    code = "NO_ENDPOINT"
    outcome = Outcome.RETRY
    exit_code = 3


class NoLeader(ClientError):
    """Nodes answered, but none of them leads. Certainly not committed."""

    code = "NO_LEADER"
    outcome = Outcome.RETRY
    exit_code = 4


class NotLeader(ClientError):
    """This node does not lead; the leader, where known, is named. Certainly not committed."""

    code = "NOT_LEADER"
    outcome = Outcome.RETRY
    exit_code = 4


class Busy(ClientError):
    """The leader has more under way than it may. Certainly not committed; try again later."""

    code = "BUSY"
    outcome = Outcome.RETRY
    exit_code = 4


class TooLarge(ClientError):
    """An entry holds more than ``Options.entry_bytes_max``. Certainly not committed."""

    code = "TOO_LARGE"
    outcome = Outcome.REFUSED
    exit_code = 2


class ChangeRefused(ClientError):
    """That change of members leads nowhere from here. Nothing was changed."""

    code = "CHANGE_REFUSED"
    outcome = Outcome.REFUSED
    exit_code = 6


class ModeRefused(ClientError):
    """A fence mode was not changed: there is no way back, or it is too early."""

    code = "MODE_REFUSED"
    outcome = Outcome.REFUSED
    exit_code = 6


class ModeUnsupported(ClientError):
    """Nobody can see writes without a token at a resource of that kind, so it has no fence mode."""

    code = "MODE_UNSUPPORTED"
    outcome = Outcome.REFUSED
    exit_code = 6


class NotCaughtUp(ClientError):
    """A node that lacks too much of the log, or was not heard of lately, is not made a voter yet (S28)."""

    code = "NOT_CAUGHT_UP"
    outcome = Outcome.RETRY
    exit_code = 4


class TransferRefused(ClientError):
    """Leadership was not handed over, and this leader serves on."""

    code = "TRANSFER_REFUSED"
    outcome = Outcome.RETRY
    exit_code = 4


class LeadershipLost(ClientError):
    """Another entry was committed in the place of this one: certainly not committed."""

    code = "LEADERSHIP_LOST"
    outcome = Outcome.RETRY
    exit_code = 4


class OutcomeUnknown(ClientError):
    """It may have been committed. Ask again under the same operation id and no other."""

    code = "OUTCOME_UNKNOWN"
    outcome = Outcome.UNKNOWN
    exit_code = 5


class OperationIdReused(ClientError):
    """The operation id belongs to another command. Nothing was executed for this one."""

    code = "OPERATION_ID_REUSED"
    outcome = Outcome.REFUSED
    exit_code = 6


class WrongState(ClientError):
    """The command is not in a state in which that can be done. Nothing was changed."""

    code = "WRONG_STATE"
    outcome = Outcome.REFUSED
    exit_code = 6


class OperationIdExpired(ClientError):
    """The operation id is older than what is remembered: whether it was executed before, nobody can tell. Not now."""

    code = "OPERATION_ID_EXPIRED"
    outcome = Outcome.REFUSED
    exit_code = 6


class ResultLost(ClientError):
    """It was executed, and only its result cannot be given."""

    code = "RESULT_LOST"
    outcome = Outcome.UNKNOWN
    exit_code = 8


class NotFound(ClientError):
    """There is no such thing on the node that was asked."""

    code = "NOT_FOUND"
    outcome = Outcome.REFUSED
    exit_code = 7


class CommandInvalid(ClientError):
    """The command itself is malformed: not JSON, too large, a name missing."""

    code = "COMMAND_INVALID"
    outcome = Outcome.REFUSED
    exit_code = 2


class CommandFailed(ClientError):
    """The command was committed and executed to a definite failure (FAILED or DEAD)."""

    code = "COMMAND_FAILED"
    outcome = Outcome.REFUSED
    exit_code = 8


class CheckFailed(FencepostError):
    """A verification found that something promised does not hold."""

    code = "CHECK_FAILED"
    outcome = Outcome.REFUSED
    exit_code = 8


class HistoryInvalid(FencepostError):
    """A recorded history that cannot be read or cannot have been. It was not judged."""

    code = "HISTORY_INVALID"
    outcome = Outcome.REFUSED
    exit_code = 2


class FenceError(FencepostError):
    """Base of what a protected resource answers when it refuses a token. Nothing was applied."""

    outcome = Outcome.REFUSED
    exit_code = 8


class StaleLeader(FenceError):
    """The resource has seen a higher token. A fact about the caller, never about the operation."""

    code = "STALE_LEADER"


class DuplicateGeneration(FenceError):
    """Another holder presented the same token: a double vote or a duplicate grant. An alarm."""

    code = "DUPLICATE_GENERATION"


class WrongCluster(FenceError):
    """The resource is fenced by another cluster. Nothing was applied."""

    code = "WRONG_CLUSTER"


class TokenMissing(FenceError):
    """A write showed no token, where the fence is enforced. Nothing was done."""

    code = "TOKEN_MISSING"


class ResourceUnavailable(FencepostError):
    """The resource could not be reached; nothing is known about an effect under way there."""

    code = "RESOURCE_UNAVAILABLE"
    outcome = Outcome.UNKNOWN
    exit_code = 1


class UnknownEntry(FencepostError):
    """A committed entry that this version cannot apply. The node stops before it (S55, S59)."""

    code = "UNKNOWN_ENTRY"
    outcome = Outcome.UNKNOWN
    exit_code = 1


class CommittedConflict(FencepostError):
    """A leader has another entry where this node knows one to be committed. The node stops (S21)."""

    code = "COMMITTED_CONFLICT"
    outcome = Outcome.UNKNOWN
    exit_code = 8


def all_errors() -> dict[str, type[FencepostError]]:
    """Every error class by its code, in the order of the tree."""
    found: dict[str, type[FencepostError]] = {}
    stack: list[type[FencepostError]] = [FencepostError]
    while stack:
        kind = stack.pop()
        found.setdefault(kind.code, kind)
        stack.extend(reversed(kind.__subclasses__()))
    return found
