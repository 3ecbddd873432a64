"""The runs of the past: what was measured, under which key, prompt by prompt.

Invariant: a reference is a run that somebody would ship: its gate passed, or nothing but the comparison with the past
itself was left open. Such a run must be kept: without it there would never be references enough to tell.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Self

from pytest_specprobe.measure.checks.busy_machine import BUSY_MACHINE, CROWDED_MACHINE
from pytest_specprobe.report.model.acceptance import Acceptance, AcceptanceRow
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.model.throughput import SpeedRow, Throughput
from pytest_specprobe.report.store import journal
from pytest_specprobe.report.store.key import Key, key_of

SCHEMA = 1
NAME = "history.jsonl"
VALUES = ("accept_length", "tok_per_s", "speedup", "baseline_tok_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One prompt of one run: rounds and accepted drafts of the acceptance pass; tokens and seconds of the other.

    None is what was not measured. Seconds are decode seconds, of ``tokens`` tokens after the first arrival.
    """

    id: str
    workload: str
    rounds: int | None = None
    accepted: int | None = None
    tokens: int | None = None
    decode_s: float | None = None
    baseline_tokens: int | None = None
    baseline_decode_s: float | None = None


_KINDS: Mapping[str, type | UnionType] = {
    "created": str, "tool": str, "commit": str | None, "drafter": str, "target": str, "verdict": str | None,
    "gate": str | None, "quiet": bool, "crowded": bool,
}  # fmt: skip
# Beyond it, and below its inverse, a ratio of two may not fit into a float.
_LARGEST = 1e18
_ESTIMATE = ("value", "low", "high", "n")
_COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One drafter's run. ``values`` holds the estimates ``{value, low, high, n}`` by name; absent is undefined.

    ``created`` is ISO 8601 with its zone; ``commit`` what the CI system said was tested. ``quiet`` is False where
    a CPU server shared its CPU with others: its times are then nobody's reference. ``crowded``: with so many that its
    speedup is nobody's either.
    """

    created: str
    tool: str
    commit: str | None
    drafter: str
    target: str
    verdict: str | None
    gate: str | None
    quiet: bool
    key: Key
    values: Mapping[str, Mapping[str, float]]
    rows: tuple[Row, ...]
    crowded: bool = False

    @property
    def id(self) -> str:
        """Return 8 hex digits that name the run."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:8]

    def estimate(self, name: str) -> Estimate | None:
        """Return an estimate of this run; None where it is undefined."""
        values = self.values.get(name)
        return None if values is None else Estimate.model_construct(None, **values)  # held as read

    def to_json(self) -> dict[str, Any]:
        """Return one line of ``history.jsonl``; rows are lists in the order of ``columns``."""
        return {
            "schema": SCHEMA,
            "created": self.created,
            "tool": self.tool,
            "commit": self.commit,
            "drafter": self.drafter,
            "target": self.target,
            "verdict": self.verdict,
            "gate": self.gate,
            "quiet": self.quiet,
            **({"crowded": True} if self.crowded else {}),
            "key": dict(self.key.parts),
            "values": {name: dict(value) for name, value in self.values.items()},
            "columns": list(_COLUMNS),
            "rows": [[getattr(row, name) for name in _COLUMNS] for row in self.rows],
        }

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Self:
        """Return the run of one line.

        :raises ValueError: if it is not one.
        """
        try:
            plain = {name: line[name] for name in _KINDS if name != "crowded"}
            rows = tuple(Row(**dict(zip(line["columns"], row, strict=True))) for row in line["rows"])
            values = {name: line["values"][name] for name in VALUES if name in line["values"]}
            run = cls(
                **plain, key=Key(dict(line["key"])), values=values, rows=rows, crowded=line.get("crowded", False)
            )
            if wrong := ", ".join(dict.fromkeys(_wrong(run))):
                raise ValueError(f"not a run: {wrong} is not what it must be")
            return run
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a run: {error!r}") from error


@dataclass(frozen=True, slots=True)
class History:
    """Runs, oldest first, and why some lines were left out."""

    runs: tuple[Run, ...]
    skipped: tuple[str, ...]

    def before(self, run: Run) -> tuple[Run, ...]:
        """Return the earlier runs of the same key, oldest first."""
        return tuple(other for other in self.comparable(run) if _when(other) < _when(run))

    def comparable(self, run: Run) -> tuple[Run, ...]:
        """Return the runs of the same key, oldest first, those of a clock that is ahead too."""
        return tuple(other for other in self.runs if other.key == run.key)

    def of(self, drafter: str) -> "History":
        """Return the runs of one drafter's name."""
        return History(tuple(run for run in self.runs if run.drafter == drafter), self.skipped)


def run_of(report: Report, entry: DrafterReport, *, commit: str | None = None) -> Run | None:
    """Return the run of one drafter's entry; None if nothing was measured, or its key is not known."""
    key = key_of(report, entry)
    if key is None or entry.acceptance is None:
        return None
    speeds = {name: getattr(entry.throughput, name, None) for name in VALUES}
    values = {**speeds, "accept_length": entry.acceptance.accept_length}
    return Run(
        created=report.created,
        tool=report.tool.version,
        commit=commit,
        drafter=entry.name,
        target=entry.target,
        verdict=entry.verdict,
        gate=entry.gate,
        quiet=not _shared_cpu(entry, BUSY_MACHINE, CROWDED_MACHINE),
        crowded=_shared_cpu(entry, CROWDED_MACHINE),
        key=key,
        values={name: estimate.model_dump() for name, estimate in values.items() if estimate},
        rows=_rows(entry.acceptance, entry.throughput),
    )


def keep(run: Run | None, *, path: Path, unsure: bool = False) -> bool:
    """Append a run whose gate passed; tell whether it was kept.

    :param unsure: the gate is open for the comparison with the past alone; then it is kept too.
    :raises OSError: if the file cannot be written.
    """
    wanted = ("pass", "inconclusive") if unsure else ("pass",)
    if run is None or run.gate not in wanted or run.verdict is None:
        return False
    journal.append(path, run.to_json())
    return True


def read(*paths: Path) -> History:
    """Return the runs of one or several files, oldest first; a directory stands for its ``history.jsonl``.

    A link that is named itself is followed, one in a directory is not: a repository can hold it.

    :raises Unreadable: if a file is there and cannot be read.
    """
    found = journal.read_all([path / NAME if path.is_dir() else path.resolve() for path in paths], schema=SCHEMA)
    runs, skipped = [], list(found.skipped)
    for line in found.lines:
        try:
            runs.append(Run.parse(line))
        except ValueError as error:
            skipped.append(f"a line of {line.get('created')}: {error}")
    return History(tuple(sorted(runs, key=_when)), tuple(skipped))


def _when(run: Run) -> tuple[str, str]:
    # created is always UTC, to the second, so text order is time order; the id parts runs of one second
    return run.created, run.id


def _rows(acceptance: Acceptance, throughput: Throughput | None) -> tuple[Row, ...]:
    timed = {row.id: row for row in (throughput.prompts if throughput else ())}
    return tuple(_row(row, timed.get(row.id)) for row in acceptance.prompts if row.dropped is None)


def _row(row: AcceptanceRow, timed: SpeedRow | None) -> Row:
    counted = Row(id=row.id, workload=row.workload, rounds=row.rounds, accepted=row.accepted)
    if timed is None:
        return counted
    return replace(
        counted,
        tokens=timed.tokens,
        decode_s=_seconds(timed.decode_s),
        baseline_tokens=timed.baseline_tokens,
        baseline_decode_s=_seconds(timed.baseline_decode_s),
    )


def _shared_cpu(entry: DrafterReport, *ids: str) -> bool:
    return any(finding.id in ids and finding.status == "fail" for finding in entry.checks)


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _wrong(run: Run) -> Iterator[str]:
    """Name what has another type than the run says, or is no number that arithmetic takes."""
    yield from (name for name, kind in _KINDS.items() if not isinstance(getattr(run, name), kind))
    if not isinstance(run.key.parts.get("flags", {}), dict):
        yield "key.flags"
    for name, value in run.values.items():
        if not all(_number(value[part]) for part in _ESTIMATE):
            yield f"values.{name}"
    for row in run.rows:
        texts, numbers = _COLUMNS[:2], _COLUMNS[2:]
        yield from (f"rows.{name}" for name in texts if not isinstance(getattr(row, name), str))
        found = {name: getattr(row, name) for name in numbers}
        yield from (f"rows.{name}" for name, value in found.items() if not (value is None or _number(value)))


def _number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or 1 / _LARGEST < abs(value) < _LARGEST
