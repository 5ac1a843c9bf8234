"""What a run of the contract kit has found: a line for each cell, and the strongest guarantee that was shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...raft.ports import Guarantee

STRONGEST_FIRST = (Guarantee.FENCED, Guarantee.KEYED, Guarantee.NAKED)


class Verdict(StrEnum):
    """What became of one cell, by one guarantee."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_SHOWN = "not shown"
    """A means is missing that the cell needs. It counts for nothing."""
    NOT_PROMISED = "not promised"
    """The declared guarantee says nothing of it."""


class ContractViolated(AssertionError):
    """A declared guarantee does not hold. The text is the report."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """One fault, and what became of it."""

    cell: str
    """The cell's name: ``"stale-after-newer"``."""
    title: str
    verdict: Verdict
    """By the declared guarantee."""
    seen: tuple[str, ...] = ()
    """What was seen that must not be, a sentence each; empty unless violated."""
    reproduce: str = ""
    """The call that runs this and nothing else; empty unless violated."""
    rather: Guarantee | None = None
    """The strongest guarantee that this cell leaves standing, where the declared one is violated."""
    note: str = ""
    """Why it was not shown or not promised, or how much of it was."""
    verdicts: tuple[tuple[Guarantee, Verdict], ...] = ()
    """By each guarantee that could have been declared."""

    def by(self, guarantee: Guarantee) -> Verdict:
        return dict(self.verdicts)[guarantee]

    def lines(self) -> list[str]:
        """The cell as text."""
        found = [f"{self.verdict:<12}  {self.title}" + (f"  ({self.note})" if self.note else "")]
        found += [f"{'':14}seen: {sentence}" for sentence in self.seen]
        if self.reproduce:
            rather = f"{self.rather}" if self.rather else "nothing, not even naked"
            found += [f"{'':14}reproduce: {self.reproduce}", f"{'':14}this would be: {rather}"]
        return found


@dataclass(frozen=True, slots=True)
class Report:
    """The whole matrix. ``str()`` of it is what a person reads."""

    subject: str
    declared: Guarantee
    cells: tuple[CellReport, ...]
    cells_of_all: int = 0
    """How many there are in the whole matrix; 0 if this is the whole."""

    @property
    def violated(self) -> tuple[CellReport, ...]:
        return tuple(cell for cell in self.cells if cell.verdict is Verdict.VIOLATED)

    @property
    def not_shown(self) -> tuple[CellReport, ...]:
        return tuple(cell for cell in self.cells if cell.verdict is Verdict.NOT_SHOWN)

    @property
    def shown(self) -> Guarantee | None:
        """The strongest guarantee all of whose cells held. None: not even ``naked``."""
        return self._strongest(Verdict.VIOLATED, Verdict.NOT_SHOWN)

    @property
    def standing(self) -> Guarantee | None:
        """The strongest guarantee that nothing speaks against, whether or not all of it was shown."""
        return self._strongest(Verdict.VIOLATED)

    def cell(self, name: str) -> CellReport:
        """Raises :class:`KeyError` if that cell was not run."""
        for cell in self.cells:
            if cell.cell == name:
                return cell
        raise KeyError(name)

    def check(self, *, complete: bool = False) -> None:
        """Raises :class:`ContractViolated` if a cell of the declared guarantee is violated; with ``complete``, also if
        one was not shown."""
        if self.violated or (complete and self.not_shown):
            raise ContractViolated(str(self))

    def summary(self) -> str:
        """One line."""
        counts = [f"{len([c for c in self.cells if c.verdict is verdict])} {verdict}" for verdict in Verdict]
        return f"{self.subject}: {self.declared} declared, {self.shown or 'nothing'} shown; {', '.join(counts)}"

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.declared} was declared"]
        for cell in self.cells:
            lines += cell.lines()
        part = f" by these {len(self.cells)} of {self.cells_of_all} cells" if self.cells_of_all else ""
        lines.append(f"the strongest guarantee that was shown{part}: {self.shown or 'none, not even naked'}")
        if self.standing is not self.shown and self.standing is not None:
            lacking = [c.title for c in self.cells if c.by(self.standing) is Verdict.NOT_SHOWN]
            lines.append(f"nothing speaks against {self.standing}, but this was not shown: {', '.join(lacking)}")
        return "\n".join(lines)

    def _strongest(self, *wrong: Verdict) -> Guarantee | None:
        for guarantee in STRONGEST_FIRST:
            if not any(cell.by(guarantee) in wrong for cell in self.cells):
                return guarantee
        return None
