"""The folder of a file resource, changed by one rename at a time, which only the newest leader can make.

Renaming knows no condition, and a lock would be held by a frozen leader for as long as it is frozen. So each
leader works in a folder named after its token, its *epoch*, and a change is renamed from there into place. A new
leader makes its own epoch and then takes all lower ones away: whatever an old one renames afterwards is not there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote

from ...core.errors import FenceError, Outcome, ResourceUnavailable
from ...core.token import FencingToken
from .file_calls import Calls
from .file_effect import STATE_FOLDER, Plan, open_parent
from .file_state import Extension, Move, State
from .ledger import StoredFence, check_fence

T = TypeVar("T")

REFUSALS_BYTES_MAX = 1 << 20
TRIES_MAX = 8


class Epoch(NamedTuple):
    """The name of a leader's folder, read."""

    token: FencingToken
    cluster: str
    holder: str

    @property
    def rank(self) -> str:
        """Sorts as the tokens do."""
        return f"{self.token.incarnation:020d}-{self.token.term:020d}"

    @property
    def name(self) -> str:
        words = (f"{self.token.incarnation:020d}", f"{self.token.term:020d}", self.cluster, self.holder)
        return "~".join(quote(word, safe="").replace("~", "%7E") for word in words)

    @staticmethod
    def of(name: str) -> Epoch | None:
        """None for what is no epoch."""
        words = [unquote(word) for word in name.split("~")]
        if len(words) != 4 or not (words[0].isdecimal() and words[1].isdecimal()):
            return None
        return Epoch(FencingToken(int(words[0]), int(words[1])), words[2], words[3])


class Revoked(Exception):
    """The epoch is gone: a newer leader took it away, or somebody cleaned up."""


class FileStore:
    """Blocks: called on one thread at a time. ``kept`` is how many operations the ledger holds."""

    def __init__(self, resource: str, root: str, cluster: str, kept: int, calls: Calls) -> None:
        self._resource = resource
        self._root = root
        self._cluster = cluster
        self._kept = kept
        self._calls = calls
        self._base = os.path.join(root, STATE_FOLDER, quote(resource, safe=""))
        self._entered: Epoch | None = None
        self._completed = ""
        """The last revision whose files are known to be in place and synced."""

    def _at(self, *parts: str) -> str:
        return os.path.join(self._base, *parts)

    def open(self) -> None:
        """Make the folders that are missing, durably. Raises OSError."""
        missing = []
        for folder in (self._at("epochs"), self._at("staged"), self._at("trash")):
            while not os.path.isdir(folder):
                if folder not in missing:
                    missing.append(folder)
                folder = os.path.dirname(folder)
        for folder in sorted(missing, key=len):
            with contextlib.suppress(FileExistsError):
                self._calls.mkdir(folder)
            self._calls.sync_folder(os.path.dirname(folder))

    def load(self) -> State:
        try:
            data = self._calls.read(self._at("state"))
        except FileNotFoundError:
            data = None
        return State(self._resource, self._kept, data)

    def is_completed(self, state: State) -> bool:
        """Whether everything that ``state`` commits is known to be in place and durable."""
        return state.revision == self._completed

    # -- one step ------------------------------------------------------------------------------------

    def change(self, token: FencingToken, holder: str, decide: Callable[[State, Plan], tuple[bool, T]]) -> T:
        """Let ``decide`` change the state and plan effects, and commit both if it says so.

        Raises what ``decide`` raises, :class:`FenceError`, :class:`ResourceUnavailable` and OSError.
        """
        epoch = Epoch(token, self._cluster, holder)
        for _ in range(TRIES_MAX):
            try:
                fresh = self._enter(epoch)
                with self._locked(epoch):
                    return self._change(epoch, decide, fresh)
            except Revoked:
                self._entered = None
        raise ResourceUnavailable(
            f"resource {self._resource!r}: {self._at('epochs', epoch.name)} goes away again and again",
            next_step="see what else cleans up in that folder",
            outcome=Outcome.RETRY,
        )

    def _change(self, epoch: Epoch, decide: Callable[[State, Plan], tuple[bool, T]], fresh: bool) -> T:
        state = self.load()
        if state.revision != self._completed:
            self._complete(state)
        if fresh:
            self._clean_up(epoch, state)
        plan = Plan(self._calls, self._root, os.stat(self._root).st_dev, state.lines)
        changed, answer = decide(state, plan)
        if changed:
            self._commit(epoch, state, plan)
            self._complete(state)
        else:
            self._stand(epoch)
        return answer

    def _stand(self, epoch: Epoch) -> None:
        """That nobody had taken over when the files were looked at: a refusal for what a successor did is none."""
        try:
            self._calls.list(self._at("epochs", epoch.name))
        except FileNotFoundError as error:
            raise Revoked from error

    def _commit(self, epoch: Epoch, state: State, plan: Plan) -> None:
        revision = secrets.token_hex(16)
        state.lines = plan.lines
        state.extensions = [Extension(path, *planned) for path, planned in plan.appends.items()]
        state.moves = [Move(path, f"{epoch.rank}-{revision}-{place}") for place, path in enumerate(plan.writes)]
        for move in state.moves:
            self._calls.write(self._at("staged", move.staged), plan.writes[move.path])
        if state.moves:
            self._calls.sync_folder(self._at("staged"))
        ready = self._at("epochs", epoch.name, "state")
        try:
            self._calls.write(ready, state.encode(revision))
            # The one step: fence, dedupe and what is to be done to the files, or nothing of it.
            self._calls.rename(ready, self._at("state"))
        except FileNotFoundError as error:
            raise Revoked from error

    def _complete(self, state: State) -> None:
        """Put in place what was committed. Harmless to repeat, and to do by an old leader that wakes in the middle:
        a staged file can be moved once only, and at an offset everybody writes the same."""
        try:
            # First the commit itself: whoever made it may not have come so far.
            self._calls.sync_folder(self._base)
            for move in state.moves:
                with self._parent(move.path) as (folder, name):
                    # Where it is not staged any more it was moved, perhaps by somebody who did not sync the folder.
                    with contextlib.suppress(FileNotFoundError):
                        self._calls.rename(self._at("staged", move.staged), name, folder)
                    self._calls.sync(folder)
            for extension in state.extensions:
                with self._parent(extension.path) as (folder, name):
                    self._calls.write_at(name, extension.offset, extension.data, folder)
                    self._calls.sync(folder)
        except OSError as error:
            raise ResourceUnavailable(
                f"resource {self._resource!r}: what is committed cannot be put in place under {self._root}: {error}",
                next_step="make room, or put right what is in the way; then it goes on by itself",
                outcome=Outcome.UNKNOWN,
            ) from error
        self._completed = state.revision

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        found = open_parent(self._calls, self._root, path, create=True)
        if found is None:
            raise AssertionError("a folder that was to be made is missing")
        try:
            yield found
        finally:
            os.close(found[0])

    # -- epochs --------------------------------------------------------------------------------------

    def _enter(self, mine: Epoch) -> bool:
        """Make sure that this leader's epoch is there and no lower one is; whether anything was done for it.

        First make one's own, then look at the others: of two leaders that do so at once, at least one sees the
        other, and it is the lower one that gives way.
        """
        if self._entered == mine:
            return False
        self._check(mine, self.load().ledger.fence)
        path = self._at("epochs", mine.name)
        with contextlib.suppress(FileExistsError):
            self._calls.mkdir(path)
        self._calls.sync_folder(self._at("epochs"))
        lower: list[str] = []
        for name in self._calls.list(self._at("epochs")):
            other = Epoch.of(name)
            if other is None or other == mine:
                continue
            try:
                rises = self._check(mine, StoredFence(self._resource, other.cluster, other.token, other.holder))
            except FenceError:
                self._remove(mine.name)
                raise
            if rises:
                lower.append(name)
        for name in lower:
            self._remove(name)
        # Also what others took away and did not come to bury. All this before the state is read.
        for name in self._calls.list(self._at("trash")):
            self._bury(self._at("trash", name))
        self._entered = mine
        return True

    def _check(self, mine: Epoch, stored: StoredFence | None) -> bool:
        return check_fence(self._resource, stored, self._cluster, mine.token, mine.holder)

    def _remove(self, name: str) -> None:
        """Take an epoch away. When it is buried, nothing can be renamed out of it or made in it any more."""
        grave = self._at("trash", secrets.token_hex(8))
        with contextlib.suppress(FileNotFoundError):
            self._calls.rename(self._at("epochs", name), grave)
            self._bury(grave)

    def _bury(self, grave: str) -> None:
        # A system call that had already found its way into the folder may still make a file, or take one out:
        # only a folder that was removed is dead. Until then it is emptied again.
        while True:
            try:
                for name in self._calls.list(grave):
                    with contextlib.suppress(FileNotFoundError):
                        self._calls.unlink(os.path.join(grave, name))
                self._calls.rmdir(grave)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    @contextlib.contextmanager
    def _locked(self, epoch: Epoch) -> Iterator[None]:
        """Against another process under the same token, which is one too many. Nobody else waits for this lock."""
        try:
            descriptor = self._calls.lock(self._at("epochs", epoch.name, "lock"))
        except FileNotFoundError as error:
            raise Revoked from error
        except BlockingIOError as error:
            raise ResourceUnavailable(
                f"resource {self._resource!r}: another process works under token {epoch.token} of {epoch.holder}",
                next_step="end the other process of this node",
                outcome=Outcome.RETRY,
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)

    def _clean_up(self, epoch: Epoch, state: State) -> None:
        """What a leader that was taken away had made ready, and never committed.

        Of lower ones only: this leader may have been frozen, and what a newer one makes ready is not its to judge.
        """
        wanted = {move.staged for move in state.moves}
        for name in self._calls.list(self._at("staged")):
            if name < epoch.rank and name not in wanted:
                with contextlib.suppress(FileNotFoundError):
                    self._calls.unlink(self._at("staged", name))

    # -- refusals ------------------------------------------------------------------------------------

    def note_refusal(self, row: list[object]) -> None:
        """Beside the state, which a leader that is refused must not touch. Never raises."""
        path = self._at("refusals")
        with contextlib.suppress(OSError):
            if os.path.exists(path) and os.stat(path).st_size > REFUSALS_BYTES_MAX:
                self._calls.rename(path, path + ".before")
            self._calls.append(path, json.dumps(row).encode() + b"\n")

    def refusals(self) -> list[list[object]]:
        try:
            return [json.loads(line) for line in self._calls.read(self._at("refusals")).splitlines()]
        except FileNotFoundError:
            return []
