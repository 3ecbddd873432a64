"""The terminal summary: one screen per drafter, rendered from the report alone."""

from collections.abc import Iterator, Mapping
from typing import Any

Entry = Mapping[str, Any]


def summary(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the terminal summary: verdict, why, numbers with intervals, what to do."""
    entries = report["drafters"]
    if not entries:
        return
    yield " specprobe ".center(100, "=")
    for entry in entries:
        yield from _drafter(entry)
    if len(entries) > 1:
        yield from _ranking(entries)
    if report.get("path"):
        yield f"report: {report['path']}"


def _drafter(entry: Entry) -> Iterator[str]:
    verdict = entry["verdict"] or "none"
    gate = entry["gate"] or "not asked"
    yield f"{entry['name']} on {entry['target']}    verdict: {verdict.upper()}    gate: {gate}"
    for reason in entry["reasons"]:
        yield from _row("why", reason)
    for finding in entry["checks"]:
        if finding["status"] == "fail" and finding["severity"] != "info":
            yield from _row(finding["severity"], f"{finding['id']} ({finding['culprit']}): {finding['seen']}")
    if entry["acceptance"]:
        yield from _acceptance(entry["acceptance"])
    if entry["throughput"]:
        yield from _throughput(entry["throughput"])
    if entry["break_even"]:
        yield from _break_even(entry["break_even"])
    for step in entry.get("next", ()):
        yield from _row("next", step)
    yield ""


def _acceptance(a: Entry) -> Iterator[str]:
    own = _number(a["sglang_accept_length"])
    yield from _row(
        "accept length",
        f"{_interval(a['accept_length'])} tokens/round = 1 + {a['accepted']} accepted / {a['rounds']} rounds, "
        f"{a['accept_length']['n']} prompts (SGLang's own, never gated: {own})",
    )
    positions = ", ".join(f"{i}: {_interval(p)}" for i, p in enumerate(a["by_position"], 1))
    yield from _row("by position", f"share of rounds with at least i accepted  {positions}")
    blind = "no blind control: not shown to read hidden states" if a["blind"] is None else (
        f"blind control {_interval(a['blind'])}"
    )  # fmt: skip
    yield from _row("must beat", f"floor {_interval(a['floor'])}, {blind}")
    domains = ", ".join(f"{name} {_interval(d['accept_length'])}" for name, d in a["by_workload"].items())
    yield from _row("by workload", domains)


def _throughput(t: Entry) -> Iterator[str]:
    yield from _row("decode rate", f"{_interval(t['tok_per_s'])} tok/s of one stream, {t['tok_per_s']['n']} prompts")
    if t["baseline_tok_per_s"]:
        yield from _row(
            "baseline", f"{_interval(t['baseline_tok_per_s'])} tok/s without speculation ({t['baseline_source']})"
        )
    if t["speedup"]:
        yield from _row("speedup", f"{_interval(t['speedup'])} x the baseline, paired by prompt")


def _break_even(b: Entry) -> Iterator[str]:
    yield from _row(
        "break-even",
        f"accept length {_number(b['accept_length'])} of at most {_number(b['max_accept_length'])} "
        f"= round time {1000 * b['round_s']:.1f} ms x baseline tok/s",
    )
    required = b["required_acceptance"]
    yield from _row(
        "to pay",
        f"{'out of reach at this depth' if required is None else f'{required:.2f} acceptance per position'}; "
        f"headroom {_number(b['headroom'])}, ceiling speedup {_number(b['ceiling_speedup'])} x",
    )


def _ranking(entries: list[Entry]) -> Iterator[str]:
    measured = [e for e in entries if e["acceptance"]]
    ordered = sorted(measured, key=lambda e: -e["acceptance"]["accept_length"]["value"])
    line = " > ".join(f"{e['name']} {_number(e['acceptance']['accept_length']['value'])}" for e in ordered)
    if line:
        yield f"accept length, best first: {line}"


def _row(label: str, text: str) -> Iterator[str]:
    yield f"  {label:<14}{text}"


def _interval(e: Mapping[str, float] | None) -> str:
    if e is None:
        return "undefined"
    return f"{_number(e['value'])} [{_number(e['low'])}, {_number(e['high'])}]"


def _number(value: float | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 10 else f"{value:.2f}"
