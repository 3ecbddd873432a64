"""Plots of one drafter's entry as inline SVG that follows the page's theme.

matplotlib draws them (extra ``report``); its fixed colours are then exchanged for CSS variables of the page, so that
one drawing serves light and dark. Nothing here may be imported before matplotlib is known to be there.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pytest_specprobe.measure.request import MIN_STRATUM
from pytest_specprobe.report.model.acceptance import Acceptance, ContextPart, Part
from pytest_specprobe.report.model.break_even import BreakEven
from pytest_specprobe.report.model.checks import Phase
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.model.history import EarlierRun
from pytest_specprobe.report.model.report import DrafterReport
from pytest_specprobe.report.model.sweep import SweepArm
from pytest_specprobe.report.model.throughput import CurvePoint
from pytest_specprobe.report.render.text import Interval, number

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


def plots(entry: DrafterReport) -> Iterator[Plot]:
    """Yield every plot that the entry has numbers for."""
    acceptance, throughput, point, history = entry.acceptance, entry.throughput, entry.break_even, entry.history
    drawn = partial(_drawn, name=entry.name)
    if acceptance:
        yield drawn(partial(_positions, a=acceptance, point=point), "Acceptance by position", "Share of rounds in "
                    "which at least so many drafts were accepted, with 95 % intervals, and what the first position "
                    "must beat.")  # fmt: skip
    if throughput and throughput.speedup and point:
        draw = partial(_speedup, length=throughput.accept_length, speedup=throughput.speedup, point=point)
        yield drawn(draw, "What accept length pays", "Speedup over accept length at this round time. "
                    "It crosses 1 at the break-even accept length; the point is this drafter.")  # fmt: skip
    if acceptance and len(acceptance.by_workload) > 1:
        yield drawn(partial(_workloads, a=acceptance, point=point), "Accept length by workload", "Tokens per round, "
                    "with 95 % intervals over prompts.")  # fmt: skip
    if acceptance and len(acceptance.by_context) > 1:
        yield drawn(partial(_contexts, a=acceptance, point=point), "Accept length by context", "Tokens per round by "
                    "how many tokens came before.")  # fmt: skip
    if throughput and throughput.curve:
        yield drawn(partial(_concurrency, curve=throughput.curve), "tok/s over requests in flight", "All streams "
                    "together, with and without speculation.")  # fmt: skip
    settings = [(row, row.tok_per_s) for row in entry.sweep if row.tok_per_s]
    if len(settings) > 1:
        yield drawn(partial(_sweep, settings=settings), "Settings of the sweep", "Speedup (or tok/s) at each "
                    "steps/topk/draft tokens, with intervals that hold for all of them at once.")  # fmt: skip
    if history and history.runs and acceptance and throughput:
        now = {"accept_length": acceptance.accept_length, "tok_per_s": throughput.tok_per_s}
        yield drawn(partial(_history, past=history.runs, now=now), "Runs of the same key", "This run, last, and the "
                    "ones before it.")  # fmt: skip
    if entry.phases:
        yield drawn(partial(_phases, phases=entry.phases), "Where the time went", "The phases of the probe in order; "
                    "boots are orange.")  # fmt: skip


def _drawn(draw: Callable[[Figure], None], title: str, says: str, *, name: str) -> Plot:
    name = re.sub(r"[^a-z0-9]+", "-", f"{name}-{title}".lower())
    style: Any = {**_STYLE, "svg.hashsalt": name}  # Any: the type of its keys is new in recent versions
    with rc_context(style), warnings.catch_warnings():
        # Of a report of another hand: a letter that the font lacks, a number that no axis has.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(_WIDE, 3.1), layout="constrained")
        draw(figure)
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


def _bars(estimates: Sequence[Interval]) -> Any:
    """Return distances below and above the values, float64 [2, n]."""
    return np.array([[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]])


def _positions(figure: Figure, *, a: Acceptance, point: BreakEven | None) -> None:
    axes = _axes(figure, x="draft position", y="share of rounds accepted")
    where = list(range(1, len(a.by_position) + 1))
    axes.errorbar(
        where, [e.value for e in a.by_position], yerr=_bars(a.by_position), fmt="o", color=_ONE, capsize=4,
        label="this drafter",
    )  # fmt: skip
    rivals = [("floor", a.floor, "s"), *([("blind control", a.blind, "D")] if a.blind else [])]
    for step, (label, rival, fmt) in enumerate(rivals):
        axes.errorbar(
            [1.08 + 0.08 * step], [rival.value], yerr=_bars([rival]), fmt=fmt, color=_MUTED, capsize=4, label=label
        )
    required = point.required_acceptance if point else None
    if required:
        needed = [required**i for i in where]
        axes.plot(
            where, needed, "--", color=_TWO, marker="_", markersize=14, label=f"to break even ({required:.0%} each)"
        )
    axes.set_xticks(where)
    axes.set_xlim(0.6, len(where) + 0.6)
    axes.set_ylim(0, 1)
    axes.legend(loc="best")


def _speedup(figure: Figure, *, length: Estimate, speedup: Estimate, point: BreakEven) -> None:
    most, b = point.max_accept_length, point.accept_length
    axes = _axes(figure, x="accept length (tokens per round)", y="speedup")
    x = np.linspace(1, most, 50)
    beyond = "" if b <= most else f": break-even {number(b)} is out of reach"
    axes.plot(x, x / b, color=_TWO, label=f"at {1000 * point.round_s:.1f} ms a round{beyond}")
    if point.intervals:
        band = point.intervals.accept_length
        axes.fill_between(x, x / band.high, x / band.low, color=_TWO, alpha=0.15, linewidth=0)
    axes.axhline(1, color=_MUTED, linestyle=":")
    if b <= most:
        axes.axvline(b, color=_MUTED, linestyle=":")
        axes.annotate(f"break-even {number(b)}", (b, 1), xycoords=("data", "axes fraction"), xytext=(4, -10),
                      textcoords="offset points", color=_MUTED)  # fmt: skip
    reach = point.headroom * b
    if reach > b or b > most:
        axes.plot([reach], [point.headroom], "D", color=_THREE, label=f"if training reaches {point.p_reach:.0%} each")
    axes.errorbar(
        [length.value], [speedup.value], xerr=_bars([length]), yerr=_bars([speedup]), fmt="o", color=_ONE,
        capsize=4, label=f"this drafter: {number(length.value)}, {number(speedup.value)} x",
    )  # fmt: skip
    axes.set_xlim(1, most)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")


def _lengths(
    figure: Figure,
    parts: Sequence[tuple[str, Part | ContextPart]],
    *,
    a: Acceptance,
    point: BreakEven | None,
) -> None:
    shown = [(label, part.prompts, part.accept_length) for label, part in parts if part.accept_length]
    figure.set_size_inches(_WIDE, max(2.4, 1.3 + 0.36 * len(shown)))
    axes = _axes(figure, x="accept length (tokens per round)")
    where = list(range(len(shown)))
    estimates = [estimate for *_, estimate in shown]
    axes.plot([e.value for e in estimates], where, "o", color=_ONE)
    enough = [(e, at) for e, at in zip(estimates, where, strict=True) if e.n >= MIN_STRATUM]
    if enough:
        bars = [e for e, _ in enough]
        axes.errorbar(
            [e.value for e in bars], [at for _, at in enough], xerr=_bars(bars), fmt="o", color=_ONE, capsize=4
        )
    axes.axvline(a.accept_length.value, color=_ONE, linestyle=":", label="all prompts")
    if point and point.accept_length <= point.max_accept_length:
        axes.axvline(point.accept_length, color=_TWO, linestyle="--", label="break-even")
    axes.set_yticks(where, [f"{_clipped(label)} ({prompts})" for label, prompts, _ in shown])
    axes.set_xlim(left=1)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))


def _workloads(figure: Figure, *, a: Acceptance, point: BreakEven | None) -> None:
    _lengths(figure, list(a.by_workload.items()), a=a, point=point)


def _contexts(figure: Figure, *, a: Acceptance, point: BreakEven | None) -> None:
    labels = [f"{p.from_:,} to {p.to:,} tokens" if p.to else f"from {p.from_:,} tokens" for p in a.by_context]
    _lengths(figure, list(zip(labels, a.by_context, strict=True)), a=a, point=point)


def _concurrency(figure: Figure, *, curve: Sequence[CurvePoint]) -> None:
    rates = [(p.concurrency, p.aggregate_tok_per_s) for p in curve if p.aggregate_tok_per_s is not None]
    base = [
        (p.concurrency, p.baseline_aggregate_tok_per_s)
        for p in curve
        if p.aggregate_tok_per_s is not None and p.baseline_aggregate_tok_per_s is not None
    ]
    axes = _axes(figure, x="requests in flight", y="tok/s, all streams")
    where = [streams for streams, _ in rates]
    axes.plot(where, [rate for _, rate in rates], "o-", color=_ONE, label="this drafter")
    if base:
        at = [streams for streams, _ in base]
        axes.plot(at, [rate for _, rate in base], "s--", color=_MUTED, label="baseline")
    axes.set_xticks(where)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")


def _sweep(figure: Figure, *, settings: Sequence[tuple[SweepArm, Estimate]]) -> None:
    rows = [row for row, _ in settings]
    speedups = [row.speedup for row in rows if row.speedup]
    paid = len(speedups) == len(rows)
    estimates = speedups if paid else [rate for _, rate in settings]
    figure.set_size_inches(6.4, max(2.4, 1.3 + 0.36 * len(rows)))
    axes = _axes(figure, x="speedup" if paid else "tok/s of one stream")
    for at, (row, estimate) in enumerate(zip(rows, estimates, strict=True)):
        colour, fmt = (_ONE, "o") if row.best else (_MUTED, "s")
        axes.errorbar([estimate.value], [at], xerr=_bars([estimate]), fmt=fmt, color=colour, capsize=4)
    if paid:
        axes.axvline(1, color=_TWO, linestyle="--", label="break-even")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    names = [f"{row.setting}{' (own)' * row.own}{' (fastest)' * row.best}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _history(figure: Figure, *, past: Sequence[EarlierRun], now: Mapping[str, Estimate]) -> None:
    figure.set_size_inches(_WIDE, 4.2)
    for at, (name, label) in enumerate((("tok_per_s", "tok/s"), ("accept_length", "accept length"))):
        axes: Axes = figure.add_subplot(2, 1, at + 1)
        found = [(i, r.values[name]) for i, r in enumerate(past) if name in r.values]
        if found:
            axes.errorbar([i for i, _ in found], [e.value for _, e in found], yerr=_bars([e for _, e in found]),
                          fmt="o", color=_MUTED, capsize=3)  # fmt: skip
            axes.axhline(float(np.median([e.value for _, e in found])), color=_MUTED, linestyle=":")
        axes.errorbar([len(past)], [now[name].value], yerr=_bars([now[name]]), fmt="o", color=_ONE, capsize=3)
        axes.set_ylabel(label)
        axes.set_xticks(range(len(past) + 1), [*(r.created[5:10] for r in past), "this run"], rotation=30, ha="right")
        axes.label_outer()


def _phases(figure: Figure, *, phases: Sequence[Phase]) -> None:
    starts = np.cumsum([0.0, *(p.seconds for p in phases)])
    least = 0.01 * sum(p.seconds for p in phases)
    shown = [(p, start) for p, start in zip(phases, starts, strict=False) if p.seconds >= least]
    figure.set_size_inches(_WIDE, max(1.8, 1.1 + 0.36 * len(shown)))
    axes = _axes(figure, x="seconds")
    for row, (phase, start) in enumerate(shown):
        colour = _TWO if phase.name == "boot" else _ONE
        axes.barh(row, phase.seconds, left=start, color=colour, height=0.6)
    axes.set_yticks(range(len(shown)), [_two_lines(f"{p.name}: {p.what}") for p, _ in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)


def _two_lines(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 28, max_lines=2, placeholder=" ..."))


def _clipped(text: str) -> str:
    return text if len(text) <= 38 else f"{text[:36]}..."
