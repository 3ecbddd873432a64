"""Plots of one drafter's entry as inline SVG that follows the page's theme.

matplotlib draws them (extra ``report``); its fixed colours are then exchanged for CSS variables of the page, so that
one drawing serves light and dark. Nothing here may be imported before matplotlib is known to be there.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pytest_specprobe.record.text import Entry, number

# Colours that occur nowhere else in a drawing, and the variables they become.
_INK, _MUTED, _GRID, _ONE, _TWO, _THREE = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_CARD = "#070707"
_VARIABLES = {
    _INK: "--ink", _MUTED: "--muted", _GRID: "--grid", _ONE: "--one", _TWO: "--two", _THREE: "--three",
    _CARD: "--card",
}  # fmt: skip
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "text.parse_math": False,
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _MUTED, "xtick.color": _MUTED,
    "ytick.color": _MUTED, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK, "grid.color": _GRID,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "lines.markersize": 7, "legend.facecolor": _CARD, "legend.edgecolor": "none", "legend.framealpha": 0.8,
    "figure.facecolor": "none", "axes.facecolor": "none",
}  # fmt: skip
# inches: small, so that its letters are still letters on a telephone
_WIDE = 5.4
_NO_METADATA: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True, slots=True)
class Plot:
    """One drawing: its title, what it shows in words (for those who cannot see it), and the SVG element."""

    title: str
    says: str
    svg: str


def plots(entry: Entry) -> Iterator[Plot]:
    """Yield every plot that the entry has numbers for."""
    acceptance, throughput, point = entry["acceptance"], entry["throughput"], entry["break_even"]
    if acceptance:
        yield _drawn(_positions, entry, "Acceptance by position", "Share of rounds in which at least so many drafts "
                     "were accepted, with 95 % intervals, and what the first position must beat.")  # fmt: skip
    if throughput and throughput["speedup"] and point:
        yield _drawn(_speedup, entry, "What accept length pays", "Speedup over accept length at this round time. "
                     "It crosses 1 at the break-even accept length; the point is this drafter.")  # fmt: skip
    if acceptance and len(acceptance["by_workload"]) > 1:
        yield _drawn(_workloads, entry, "Accept length by workload", "Tokens per round, with 95 % intervals over "
                     "prompts.")  # fmt: skip
    if acceptance and len(acceptance["by_context"]) > 1:
        yield _drawn(_contexts, entry, "Accept length by context", "Tokens per round by how many tokens came "
                     "before.")  # fmt: skip
    if throughput and throughput["curve"]:
        yield _drawn(_concurrency, entry, "tok/s over requests in flight", "All streams together, with and without "
                     "speculation.")  # fmt: skip
    if len([row for row in entry["sweep"] if row["tok_per_s"]]) > 1:
        yield _drawn(_sweep, entry, "Settings of the sweep", "Speedup (or tok/s) at each steps/topk/draft tokens, "
                     "with intervals that hold for all of them at once.")  # fmt: skip
    if entry["history"] and len(entry["history"]["runs"]) > 0 and throughput:
        yield _drawn(_history, entry, "Runs of the same key", "This run, last, and the ones before it.")
    if entry["phases"]:
        yield _drawn(_phases, entry, "Where the time went", "The phases of the probe in order; boots are orange.")


def _drawn(draw: Callable[[Figure, Entry], None], entry: Entry, title: str, says: str) -> Plot:
    name = re.sub(r"[^a-z0-9]+", "-", f"{entry['name']}-{title}".lower())
    style: Any = {**_STYLE, "svg.hashsalt": name}  # Any: the type of its keys is new in recent versions
    with rc_context(style), warnings.catch_warnings():
        # Of a report of another hand: a letter that the font lacks, a number that no axis has.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(_WIDE, 3.1), layout="constrained")
        draw(figure, entry)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    return Plot(title, says, _inline(file.getvalue(), name))


def _inline(text: str, name: str) -> str:
    """Return the SVG element alone: themed, scalable, with ids that no other drawing of the page has."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(
        r'(<svg[^>]*?) width="[^"]*" height="[^"]*"|(<svg[^>]*?) height="[^"]*" width="[^"]*"', r"\1\2", text
    )
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.strip()


def _axes(figure: Figure, *, x: str = "", y: str = "") -> Axes:
    axes: Axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return axes


def _bars(estimates: Sequence[Entry]) -> Any:
    """Return distances below and above the values, float64 [2, n]."""
    return np.array([[e["value"] - e["low"] for e in estimates], [e["high"] - e["value"] for e in estimates]])


def _positions(figure: Figure, entry: Entry) -> None:
    a, point = entry["acceptance"], entry["break_even"]
    axes = _axes(figure, x="draft position", y="share of rounds accepted")
    where = list(range(1, len(a["by_position"]) + 1))
    axes.errorbar(
        where, [e["value"] for e in a["by_position"]], yerr=_bars(a["by_position"]), fmt="o", color=_ONE, capsize=4,
        label="this drafter",
    )  # fmt: skip
    rivals = (("floor", a["floor"], "s"), ("blind control", a["blind"], "D"))
    for step, (label, rival, fmt) in enumerate(r for r in rivals if r[1] is not None):
        axes.errorbar(
            [1.08 + 0.08 * step], [rival["value"]], yerr=_bars([rival]), fmt=fmt, color=_MUTED, capsize=4, label=label
        )
    required = point["required_acceptance"] if point else None
    if required:
        needed = [required**i for i in where]
        axes.plot(
            where, needed, "--", color=_TWO, marker="_", markersize=14, label=f"to break even ({required:.0%} each)"
        )
    axes.set_xticks(where)
    axes.set_xlim(0.6, len(where) + 0.6)
    axes.set_ylim(0, 1)
    axes.legend(loc="best")


def _speedup(figure: Figure, entry: Entry) -> None:
    t, point = entry["throughput"], entry["break_even"]
    most, b = point["max_accept_length"], point["accept_length"]
    axes = _axes(figure, x="accept length (tokens per round)", y="speedup")
    x = np.linspace(1, most, 50)
    beyond = "" if b <= most else f": break-even {number(b)} is out of reach"
    axes.plot(x, x / b, color=_TWO, label=f"at {1000 * point['round_s']:.1f} ms a round{beyond}")
    if point["intervals"]:
        band = point["intervals"]["accept_length"]
        axes.fill_between(x, x / band["high"], x / band["low"], color=_TWO, alpha=0.15, linewidth=0)
    axes.axhline(1, color=_MUTED, linestyle=":")
    if b <= most:
        axes.axvline(b, color=_MUTED, linestyle=":")
        axes.annotate(f"break-even {number(b)}", (b, 1), xycoords=("data", "axes fraction"), xytext=(4, -10),
                      textcoords="offset points", color=_MUTED)  # fmt: skip
    reach = point["headroom"] * b
    if reach > b or b > most:
        axes.plot(
            [reach], [point["headroom"]], "D", color=_THREE, label=f"if training reaches {point['p_reach']:.0%} each"
        )
    length, speedup = t["accept_length"], t["speedup"]
    axes.errorbar(
        [length["value"]], [speedup["value"]], xerr=_bars([length]), yerr=_bars([speedup]), fmt="o", color=_ONE,
        capsize=4, label=f"this drafter: {number(length['value'])}, {number(speedup['value'])} x",
    )  # fmt: skip
    axes.set_xlim(1, most)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")


def _lengths(figure: Figure, entry: Entry, labels: Sequence[str], parts: Sequence[Entry]) -> None:
    a, point = entry["acceptance"], entry["break_even"]
    shown = [(label, part) for label, part in zip(labels, parts, strict=True) if part["accept_length"]]
    figure.set_size_inches(_WIDE, max(2.4, 1.3 + 0.36 * len(shown)))
    axes = _axes(figure, x="accept length (tokens per round)")
    where = list(range(len(shown)))
    estimates = [part["accept_length"] for _, part in shown]
    axes.errorbar([e["value"] for e in estimates], where, xerr=_bars(estimates), fmt="o", color=_ONE, capsize=4)
    axes.axvline(a["accept_length"]["value"], color=_ONE, linestyle=":", label="all prompts")
    if point and point["accept_length"] <= point["max_accept_length"]:
        axes.axvline(point["accept_length"], color=_TWO, linestyle="--", label="break-even")
    axes.set_yticks(where, [f"{_clipped(label)} ({part['prompts']})" for label, part in shown])
    axes.set_xlim(left=1)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))


def _workloads(figure: Figure, entry: Entry) -> None:
    parts = entry["acceptance"]["by_workload"]
    _lengths(figure, entry, list(parts), list(parts.values()))


def _contexts(figure: Figure, entry: Entry) -> None:
    parts = entry["acceptance"]["by_context"]
    labels = [f"{p['from']:,} to {p['to']:,} tokens" if p["to"] else f"from {p['from']:,} tokens" for p in parts]
    _lengths(figure, entry, labels, parts)


def _concurrency(figure: Figure, entry: Entry) -> None:
    curve = [p for p in entry["throughput"]["curve"] if p["aggregate_tok_per_s"] is not None]
    axes = _axes(figure, x="requests in flight", y="tok/s, all streams")
    where = [p["concurrency"] for p in curve]
    axes.plot(where, [p["aggregate_tok_per_s"] for p in curve], "o-", color=_ONE, label="this drafter")
    base = [p for p in curve if p["baseline_aggregate_tok_per_s"] is not None]
    if base:
        axes.plot([p["concurrency"] for p in base], [p["baseline_aggregate_tok_per_s"] for p in base], "s--",
                  color=_MUTED, label="baseline")  # fmt: skip
    axes.set_xticks(where)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")


def _sweep(figure: Figure, entry: Entry) -> None:
    rows = [row for row in entry["sweep"] if row["tok_per_s"]]
    paid = all(row["speedup"] for row in rows)
    figure.set_size_inches(6.4, max(2.4, 1.3 + 0.36 * len(rows)))
    axes = _axes(figure, x="speedup" if paid else "tok/s of one stream")
    for at, row in enumerate(rows):
        estimate = row["speedup"] if paid else row["tok_per_s"]
        colour, fmt = (_ONE, "o") if row["best"] else (_MUTED, "s")
        axes.errorbar([estimate["value"]], [at], xerr=_bars([estimate]), fmt=fmt, color=colour, capsize=4)
    if paid:
        axes.axvline(1, color=_TWO, linestyle="--", label="break-even")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    names = [f"{row['setting']}{' (own)' * row['own']}{' (fastest)' * row['best']}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _history(figure: Figure, entry: Entry) -> None:
    past = entry["history"]["runs"]
    now = {"accept_length": entry["acceptance"]["accept_length"], "tok_per_s": entry["throughput"]["tok_per_s"]}
    figure.set_size_inches(_WIDE, 4.2)
    for at, (name, label) in enumerate((("tok_per_s", "tok/s"), ("accept_length", "accept length"))):
        axes: Axes = figure.add_subplot(2, 1, at + 1)
        found = [(i, r["values"][name]) for i, r in enumerate(past) if name in r["values"]]
        if found:
            axes.errorbar([i for i, _ in found], [e["value"] for _, e in found], yerr=_bars([e for _, e in found]),
                          fmt="o", color=_MUTED, capsize=3)  # fmt: skip
            axes.axhline(float(np.median([e["value"] for _, e in found])), color=_MUTED, linestyle=":")
        axes.errorbar([len(past)], [now[name]["value"]], yerr=_bars([now[name]]), fmt="o", color=_ONE, capsize=3)
        axes.set_ylabel(label)
        axes.set_xticks(
            range(len(past) + 1), [*(r["created"][5:10] for r in past), "this run"], rotation=30, ha="right"
        )
        axes.label_outer()


def _phases(figure: Figure, entry: Entry) -> None:
    phases = [p for p in entry["phases"] if p["seconds"] >= 0.01 * sum(q["seconds"] for q in entry["phases"])]
    figure.set_size_inches(_WIDE, max(1.8, 1.1 + 0.36 * len(phases)))
    axes = _axes(figure, x="seconds")
    starts = np.cumsum([0.0, *(p["seconds"] for p in entry["phases"])])
    begin = {id(p): start for p, start in zip(entry["phases"], starts, strict=False)}
    for row, phase in enumerate(phases):
        colour = _TWO if phase["name"] == "boot" else _ONE
        axes.barh(row, phase["seconds"], left=begin[id(phase)], color=colour, height=0.6)
    axes.set_yticks(range(len(phases)), [_two_lines(f"{p['name']}: {p['what']}") for p in phases])
    axes.set_ylim(len(phases) - 0.5, -0.5)


def _two_lines(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 28, max_lines=2, placeholder=" ..."))


def _clipped(text: str) -> str:
    return text if len(text) <= 38 else f"{text[:36]}..."
