"""The product's renderings, keys and past, as the characterization sees them: plain data in, plain data out."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

from pytest_specprobe.decide.gate import GateCheck, worst
from pytest_specprobe.decide.verdict import Decision
from pytest_specprobe.report.build import DECIDED, decided
from pytest_specprobe.report.exit_code import Outcome, exit_code
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.render.html import page
from pytest_specprobe.report.render.markdown import markdown
from pytest_specprobe.report.render.terminal import summary
from pytest_specprobe.report.store import history
from pytest_specprobe.report.store.baselines import StoredBaseline, baseline_key, find
from pytest_specprobe.report.store.key import Key, key_of
from pytest_specprobe.report.store.past import remember
from pytest_specprobe.server.spec import ServerSpec

Json = dict[str, Any]


# --- renderings -------------------------------------------------------------------------------------------------


def terminal(report: Json, **more: Any) -> str:
    return "\n".join(line.rstrip() for line in summary(report_of(report), path=report.get("path", ""), **more))


def markdown_page(report: Json) -> str:
    return "\n".join(markdown(report_of(report)))


def html_page(report: Json) -> str:
    """The page as it is made without matplotlib: its version must not matter."""
    with mock.patch.dict(sys.modules, {"matplotlib": None}):
        sys.modules.pop("pytest_specprobe.report.render.plots", None)
        return page(report_of(report))


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in {"style", "script"}
        shown = [f"{name}={value}" for name, value in attrs if name in {"class", "href", "title"}]
        if shown and not self._hidden:
            self.parts.append(f"\n<{tag} {' '.join(shown)}> ")
        elif tag in {"tr", "p", "li", "h1", "h2", "h3", "dt", "summary"}:
            self.parts.append("\n")
        elif tag in {"td", "th", "dd"}:
            self.parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"style", "script"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def html_text(whole: str) -> str:
    """What a reader reads of a page, a line per row, with the classes that colour it."""
    parser = _Text()
    parser.feed(whole)
    found = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return "\n".join(line for line in found if line)


def exit_status(
    status: int, *, failures: Sequence[Any], wanted: Sequence[str], entries: Mapping[str, Json], static: bool = False
) -> int:
    reports = {name: DrafterReport.model_construct(None, **entry) for name, entry in entries.items()}
    return exit_code(status, Outcome(set(failures), set(wanted)), reports, static=static)


# --- keys and the past ------------------------------------------------------------------------------------------


def _models(report: Json, entry: Json) -> tuple[Report, DrafterReport]:
    return report_of(report), report_of({**report, "drafters": [entry]}).drafters[0]


def key(report: Json, entry: Json) -> Json | None:
    found = key_of(*_models(report, entry))
    return None if found is None else {"id": found.id, "parts": dict(found.parts)}


def key_differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> Json:
    return {name: list(pair) for name, pair in Key(one).differences(Key(two)).items()}


def history_line(report: Json, entry: Json, *, commit: str | None = None) -> Json | None:
    run = history.run_of(*_models(report, entry), commit=commit)
    return None if run is None else {"id": run.id, "line": run.to_json()}


def earlier(lines: Sequence[Any]) -> list[list[str]]:
    """Of each run of a history, oldest first: when it was, and when those of the same key before it were."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / history.NAME
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        found = history.read(path)
    return [[run.created, *(other.created for other in found.before(run))] for run in found.runs]


def decision_of(entry: Json) -> Decision:
    """An entry's decision, before its past."""
    checks = tuple(GateCheck(**c) for c in entry["gate_checks"] if c["name"] != "max_regression")
    return Decision(
        verdict=entry["verdict"],
        candidates=tuple(entry["candidates"]),
        gate=worst(c.result for c in checks) if checks else entry["gate"],
        gate_checks=checks,
        reasons=tuple(entry["reasons"]),
        next=tuple(entry["next"]),
        more_prompts=entry["more_prompts"],
    )


def remembered(
    report: Json, lines: Sequence[Any], *, limit: float, environ: Mapping[str, str] | None = None
) -> tuple[Json, list[Json]]:
    """The report once its history was added, and the lines that were appended; ``lines``: the file before."""
    copy: Json = json.loads(json.dumps(report))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / history.NAME
        before = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        if before:
            file.write_text("".join(f"{line}\n" for line in before), encoding="utf-8")
        for entry in copy["drafters"]:
            seen, own = _models(copy, entry)
            told = remember(seen, own, decision_of(entry), folder=folder, limit=limit, environ=environ or {})
            after = decided(own, told.decision, history=told.history or own.history)
            entry.update(after.model_dump(mode="json", include={*DECIDED, "history"}))
        lines_after = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        text = json.dumps(copy).replace(name, "FOLDER")
    found: Json = json.loads(text)
    return found, [json.loads(line) for line in lines_after[len(before) :]]


def stored_baseline(line: Mapping[str, Any], *, now: str) -> Json:
    """What a stored baseline is worth at that moment."""
    known = asdict(StoredBaseline.parse(line).known(now=datetime.fromisoformat(now)))
    return {**known, "tok_per_s": dict(known["tok_per_s"])}


def stored_lookup(lines: Sequence[Any], *, key: Mapping[str, Any]) -> str | None:
    """When the stored baseline was made that is found for a key; ``lines``: the file (text: as it is)."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "baselines.jsonl"
        if lines:
            path.write_text("".join(f"{ln if isinstance(ln, str) else json.dumps(ln)}\n" for ln in lines))
        found = find(Key(dict(key)), path=path)
    return None if found is None else found.created


def stored_key(**parts: Any) -> Json:
    spec = ServerSpec(**parts.pop("spec"))
    parts = {"torch": "2.11.0", "host": "16 cores, Xeon", "driver": "570.1", **parts}
    return dict(baseline_key(spec, **parts).parts)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No log record of the product is shown meanwhile."""
    import logging  # noqa: PLC0415 - used here alone

    logger = logging.getLogger("pytest_specprobe")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
