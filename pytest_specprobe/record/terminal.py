"""The terminal summary: one screen per drafter, rendered from the report alone.

Verdict first, then why, then the numbers (value, 95 % interval, how it is computed, of how many), then what to do.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_specprobe.record.text import (
    GATE_SAYS,
    MEASURES,
    VERDICT_SAYS,
    Entry,
    interval,
    number,
    paid_by,
    past,
    seconds,
    share,
    unexplained,
)

WIDTH = 100
_LABEL = 17
_FINDINGS = 4
_GOOD, _BAD, _OPEN, _BOLD, _DIM, _OFF = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLOURS = {"pass": _GOOD, "fail": _BAD, "error": _BAD, "inconclusive": _OPEN}


def summary(report: Mapping[str, Any], *, colour: bool = False, width: int = WIDTH) -> Iterator[str]:
    """Yield the lines of the terminal summary.

    :param report: a report as ``record.report.compose`` makes it; ``path`` is shown if it is there.
    :param colour: whether to colour verdict and labels with ANSI codes: for a terminal only.
    :param width: columns to wrap at; continued lines hang under their text.
    """
    paint = _Paint(colour=colour, width=max(width, 60))
    entries = report["drafters"]
    if not entries:
        return
    yield " specprobe ".center(paint.width, "=")
    for entry in entries:
        yield from _drafter(entry, paint)
        yield ""
    yield from _ranking(report.get("comparisons", ()), paint)
    if report.get("path"):
        yield from paint.row("report", f"{report['path']}   (pages from it: specprobe report --format html)")


class _Paint:
    """Lays out labelled rows; colours them if asked to."""

    def __init__(self, *, colour: bool, width: int) -> None:
        self.width = width
        self._colour = colour

    def ink(self, text: str, code: str) -> str:
        return f"{code}{text}{_OFF}" if self._colour else text

    def row(self, label: str, text: str, code: str = _DIM) -> Iterator[str]:
        room = self.width - _LABEL - 2
        lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) or [""]
        yield f"  {self.ink(f'{label:<{_LABEL}}', code)}{lines[0]}"
        yield from (f"{'':{_LABEL + 2}}{line}" for line in lines[1:])

    def rows(self, label: str, texts: Sequence[str], code: str = _DIM) -> Iterator[str]:
        for at, text in enumerate(texts):
            yield from self.row(label if at == 0 else "", text, code)


def _drafter(entry: Entry, paint: _Paint) -> Iterator[str]:
    verdict, gate = entry["verdict"], entry["gate"]
    code = _COLOURS.get(gate, "") + _BOLD
    head = (verdict or "no verdict").upper()
    yield f"{paint.ink(entry['name'], _BOLD)} on {entry['target']}: {paint.ink(head, code)}, {VERDICT_SAYS[verdict]}"
    yield from paint.row("gate", GATE_SAYS[gate] + _gate_detail(entry), code)
    yield from paint.rows("why", entry["reasons"])
    wrong = unexplained(entry)
    for finding in wrong[:_FINDINGS]:
        text = f"{finding['id']} ({finding['culprit']}): saw {finding['seen']}. {finding['fix']}"
        yield from paint.row(finding["severity"], text, _OPEN)
    if len(wrong) > _FINDINGS:
        yield from paint.row("", f"and {len(wrong) - _FINDINGS} more findings in the report")
    if gate == "error" and entry["acceptance"]:
        yield from paint.row("numbers", "of an invalid measurement: shown to find the cause, not to be used", _BAD)
    if entry["acceptance"]:
        yield from _acceptance(entry["acceptance"], paint)
    if entry["throughput"]:
        yield from _throughput(entry["throughput"], paint)
    if entry["break_even"]:
        yield from _break_even(entry, paint)
    if entry["history"]:
        yield from paint.row("before", past(entry["history"]))
    if entry["acceptance"]:
        yield from paint.row("measured", _provenance(entry))
    yield from paint.rows("what to do", entry["next"], _BOLD)


def _gate_detail(entry: Entry) -> str:
    open_ = [c for c in entry["gate_checks"] if c["result"] != "pass"]
    if not open_:
        return ""
    return ": " + "; ".join(f"{c['name']} saw {c['seen']}, wanted {c['wanted']}" for c in open_)


def _acceptance(a: Entry, paint: _Paint) -> Iterator[str]:
    length = a["accept_length"]
    yield from paint.row(
        "accept length",
        f"{interval(length)} tokens/round of at most {a['max_accept_length']}   = 1 + {a['accepted']:,} accepted / "
        f"{a['rounds']:,} rounds, {length['n']} prompts",
    )
    yield from paint.row(
        "", f"SGLang's own {number(a['sglang_accept_length'])} (tokens / rounds): above 1.0 even when nothing is "
        "accepted, so never gated"
    )  # fmt: skip
    positions = "   ".join(f"{i}: {interval(p)}" for i, p in enumerate(a["by_position"], 1))
    yield from paint.row("by position", f"{positions}   share of rounds with at least i drafts accepted")
    blind = f" and blind control {interval(a['blind'])}" if a["blind"] else " (no blind control was run)"
    yield from paint.row(
        "1st position",
        f"{interval(a['by_position'][0])} against floor {interval(a['floor'])}{blind}; margin "
        f"{interval(a['p1_margin'])}, paired by prompt",
    )
    parts = a["by_workload"]
    if len(parts) > 1:
        yield from paint.row(
            "by workload", "   ".join(f"{name}: {interval(p['accept_length'])}" for name, p in parts.items())
        )


def _throughput(t: Entry, paint: _Paint) -> Iterator[str]:
    rate = t["tok_per_s"]
    streams = "" if t["concurrency"] == 1 else f", {t['concurrency']} streams in flight"
    yield from paint.row(
        "tok/s",
        f"{interval(rate)} of one stream   = tokens / decode seconds after the first, {rate['n']} prompts{streams}",
    )
    if t["baseline_tok_per_s"]:
        source = t["baseline_source"] or "measured"
        if t["baseline_age_s"] is not None:
            source = f"{source}, {seconds(t['baseline_age_s'])} old"
        yield from paint.row("baseline tok/s", f"{interval(t['baseline_tok_per_s'])} without speculation ({source})")
    if t["speedup"]:
        yield from paint.row("speedup", f"{interval(t['speedup'])} x   = tok/s over baseline tok/s, paired by prompt")
    for point in t["curve"] or ():
        speedup = interval(point["speedup"]) if point["speedup"] else "undefined"
        yield from paint.row("", f"{point['concurrency']} streams: speedup {speedup} x")


def _break_even(entry: Entry, paint: _Paint) -> Iterator[str]:
    point, intervals = entry["break_even"], entry["break_even"]["intervals"]
    length = interval(intervals["accept_length"]) if intervals else number(point["accept_length"])
    headroom = interval(intervals["headroom"]) if intervals else number(point["headroom"])
    yield from paint.row(
        "break-even",
        f"accept length {length} of at most {point['max_accept_length']}   = round time "
        f"{1000 * point['round_s']:.1f} ms x baseline tok/s",
    )
    yield from paint.row(
        "to pay",
        f"{paid_by(entry)}; headroom {headroom} if training reaches {share(point['p_reach'])} at every position; "
        f"ceiling {number(point['ceiling_speedup'])} x if every draft were accepted",
    )


def _provenance(entry: Entry) -> str:
    server, workload = entry["server"], entry["workload"]
    dropped = len(entry["acceptance"]["dropped"])
    parts = [f"{workload['prompts']} prompts of workload {workload['name']}" if workload else ""]
    parts.append(f"{dropped} left out" if dropped else "")
    if server:
        parts.append(f"SGLang {server['version'] or '?'} on {server['device']}")
    parts.append(f"{seconds(sum(p['seconds'] for p in entry['phases']))} in all")
    return ", ".join(part for part in parts if part) + "; [low, high] are 95 % intervals over prompts"


def _ranking(comparisons: Sequence[Entry], paint: _Paint) -> Iterator[str]:
    for both in comparisons:
        for ranking in (both["accept_length"], both["speed"]):
            if ranking is None:
                continue
            order = " > ".join(f"{name} {number(ranking['estimates'][name]['value'])}" for name in ranking["order"])
            sure = f"{ranking['winner']} surely leads" if ranking["winner"] else "the lead is within the intervals"
            label = MEASURES[ranking["measure"]]
            yield from paint.row(label, f"on {both['target']}: {order} ({sure}, {ranking['prompts']} shared prompts)")
