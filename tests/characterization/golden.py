"""Golden files: what they hold, how a value becomes lines of one, and how a difference is told.

Numbers are shown with seven significant digits, by ``repr``. Sums of the same numbers in another order (another BLAS,
another numpy) differ in the sixteenth: they change no line, while all that a report shows has three or four digits.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("golden")
REWRITE = "python -m tests.characterization.rewrite"
_ESTIMATE = {"value", "low", "high", "n"}
_SHORT, _ROW = 100, 900


def number(value: float) -> str:
    """Seven significant digits, by ``repr``; never ``-0.0``."""
    return repr(float(f"{value:.7g}") + 0.0)


def inline(value: Any) -> str:
    """A value on one line; an estimate as ``value [low, high] n=prompts``."""
    if _is_estimate(value):
        low, high = number(value["low"]), number(value["high"])
        return f"{number(value['value'])} [{low}, {high}] n={value['n']}"
    match value:
        case float():
            shown = number(value)
        case None | bool() | str():
            shown = json.dumps(value, ensure_ascii=False)
        case Mapping():
            shown = "{" + ", ".join(f"{name}: {inline(value[name])}" for name in sorted(value)) + "}"
        case Sequence():
            shown = "[" + ", ".join(map(inline, value)) + "]"
        case _:
            shown = repr(value)
    return shown


def _is_estimate(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == _ESTIMATE


def _is_row(value: Any) -> bool:
    items = value.values() if isinstance(value, Mapping) else value
    return not any(isinstance(item, Mapping) and not _is_estimate(item) for item in items)


def lines(value: Any, path: str = "") -> Iterator[str]:
    """One line per leaf, ``path = value``, sorted by path as far as mappings go; short values stay on one line.

    So do the items of a list that hold no mapping (a prompt's row, a finding).
    """
    flat = inline(value)
    nested = isinstance(value, Mapping | list | tuple) and not _is_estimate(value)
    if (
        not nested
        or len(flat) <= _SHORT
        or not value
        or (path.endswith("]") and len(flat) <= _ROW and _is_row(value))
    ):
        yield f"{path} = {flat}"
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield from lines(value[name], f"{path}.{name}" if path else str(name))
    else:
        for at, item in enumerate(value):
            yield from lines(item, f"{path}[{at}]")


def block(title: str, value: Any) -> str:
    """One case of a golden file, whole: its title, and a line per leaf (text is given as it is)."""
    body = value if isinstance(value, str) else "\n".join(lines(value))
    return f"=== {title}\n{body}\n"


def digest(value: Any) -> str:
    """Twelve hex digits of a value as its lines show it."""
    return hashlib.sha256("\n".join(lines(value)).encode()).hexdigest()[:12]


def path_of(noun: str) -> Path:
    return FOLDER / f"{noun}.txt"


def difference(noun: str, made: str) -> str | None:
    """The first line that differs from the golden file, in words; None where all are the same."""
    path = path_of(noun)
    held = path.read_text(encoding="utf-8") if path.exists() else ""
    if made == held:
        return None
    case = "the beginning"
    for at, (old, new) in enumerate(zip_longest(held.split("\n"), made.split("\n")), 1):
        if old != new:
            return (
                f"{path.relative_to(FOLDER.parents[2])}:{at} differs (in {case})\n  held: {old}\n  made: {new}\n"
                f"if this is meant: {REWRITE} {noun}"
            )
        if new is not None and new.startswith("=== "):
            case = new.removeprefix("=== ")
    return f"{path.name} differs in its line ends"
