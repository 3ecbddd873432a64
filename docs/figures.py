"""Figures quoted in README, docs and records, taken from the raw files of the record they name.

A quoted figure stands between two comments, which no reader sees::

    <!-- = mini-cpu:aq_k2_mini.throughput.speedup -->0.93 [0.88, 0.97]<!-- . -->

``mini-cpu`` is a folder of docs/records; after the colon comes a path into its report.json, first a drafter's
name (or a key of the report itself). ``mini-cpu/bench.json:`` names another file of the record. In a list,
``phases[name=boot].seconds`` takes the first element with these values (several: comma), ``by_position[0]``
one by its place, and ``phases[*].seconds`` the sum over all. A quotient is two paths with `` / `` between.
The format follows from what is found (interval, number, whole number, text) unless one is asked for: ``... as
s``, ``ms``, ``%``, ``value``, ``low``, ``high``. A screen, the whole summary of a record, stands in a code
block right below ``<!-- screen mini-cpu -->``.

``python -m docs.figures`` puts the right text everywhere; a test fails while any is wrong.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.read import read_report, report_of
from pytest_specprobe.report.render.terminal import summary
from pytest_specprobe.report.render.text import interval, number, seconds, share

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RECORDS = DOCS / "records"
_FIGURE = re.compile(r"(<!-- = (?P<asked>[^>]+?) -->)(?P<text>.*?)(<!-- \. -->)", re.DOTALL)
_SCREEN = re.compile(
    r"(<!-- screen (?P<name>\S+) -->\n```\w*\n(?:\$ [^\n]*\n)?)(?P<text>.*?)(?=^```)", re.DOTALL | re.MULTILINE
)
_STEP = re.compile(r"\.?(?P<key>[^.\[\]]+)|\[(?P<pick>[^\]]*)\]")
_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "s": seconds,
    "ms": lambda value: f"{1000 * value:.1f} ms",
    "%": share,
    "value": lambda found: number(found["value"]),
    "low": lambda found: number(found["low"]),
    "high": lambda found: number(found["high"]),
}


class WrongFigure(ValueError):
    """A quoted figure names what no record holds."""


def pages() -> Iterator[Path]:
    """Yield every page that may quote a record."""
    yield ROOT / "README.md"
    yield from sorted(DOCS.glob("*.md"))
    yield from sorted(RECORDS.glob("*/record.md"))


def filled(text: str) -> str:
    """Return a page with every quoted figure and screen as its record has it.

    :raises WrongFigure: if a record, a file or a path is not there, or the format does not fit what is.
    """
    text = _FIGURE.sub(lambda found: f"{found[1]}{figure(found['asked'])}{found[4]}", text)
    return _SCREEN.sub(lambda found: f"{found[1]}{screen(found['name'], whole='$ ' in found[1])}", text)


def unquoted(text: str) -> str:
    """Return a page without its quoted figures, screens and comments: what nothing vouches for."""
    return re.sub(r"<!--.*?-->", "", _SCREEN.sub("", _FIGURE.sub("", text)), flags=re.DOTALL)


def figure(asked: str) -> str:
    """Return one figure as text; ``asked`` is what the comment says after ``=``."""
    terms, _, wanted = asked.partition(" as ")
    first, *rest = (_found(term.strip()) for term in terms.split(" / "))
    try:
        for other in rest:
            first = _plain(first) / _plain(other)
        return _FORMATS[wanted.strip()](_as_asked(first, wanted.strip())) if wanted else _shown(first)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise WrongFigure(f"{asked}: {error!r}") from error


def screen(name: str, *, whole: bool) -> str:
    """Return the summary of a record, as a terminal shows it; ``whole`` adds the lines on where the report is.

    :raises WrongFigure: if there is no such record.
    """
    try:
        report = read_report(RECORDS / name)
    except ProfileError as error:
        raise WrongFigure(f"screen {name}: {error}") from error
    del report["path"]
    lines = summary(report_of(report), path="HOME/.specprobe/report.json" if whole else "")
    return "\n".join(lines).rstrip() + "\n"


def _found(term: str) -> Any:
    file, colon, path = term.partition(":")
    name, _, inside = file.partition("/")
    if not colon or not path:
        raise WrongFigure(f"{term!r} is not RECORD:PATH")
    try:
        document: Any = _load(RECORDS / name / (inside or "report.json"))
        if not inside:
            document = document | {entry["name"]: entry for entry in document["drafters"]}
        return _walk(document, path)
    except (OSError, KeyError, IndexError, TypeError, StopIteration) as error:
        raise WrongFigure(f"{term}: {error!r}") from error


@cache
def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _walk(document: Any, path: str) -> Any:
    at = document
    for step in _STEP.finditer(path):
        if step["key"] is not None:
            at = at[step["key"]]
        elif step["pick"] == "*":
            rest = path[step.end() :]
            return sum(_walk(part, rest) for part in at)
        elif "=" in step["pick"]:
            wanted = dict(pair.split("=", 1) for pair in step["pick"].split(","))
            at = next(part for part in at if all(str(part.get(key)) == value for key, value in wanted.items()))
        else:
            at = at[int(step["pick"])]
    return at


def _plain(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) else value


def _as_asked(value: Any, wanted: str) -> Any:
    return value if wanted in {"value", "low", "high"} else _plain(value)


def _shown(value: Any) -> str:
    if value is None:
        raise TypeError("it was not measured")
    if isinstance(value, dict):
        return interval(Estimate.model_validate(value))
    if isinstance(value, list):
        return ", ".join(str(part) for part in value) or "none"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value)


def main() -> None:
    """Put every page right."""
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
