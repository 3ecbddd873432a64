"""The measured numbers of one drafter, in the order in which they are read: value, then how it comes about."""

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_specprobe.report.model.acceptance import Acceptance, Sampled
from pytest_specprobe.report.model.break_even import BreakEven, Predicted
from pytest_specprobe.report.model.losslessness import Losslessness
from pytest_specprobe.report.model.report import DrafterReport
from pytest_specprobe.report.model.sweep import Parity, SweepArm, SweepBest
from pytest_specprobe.report.model.throughput import Throughput
from pytest_specprobe.report.render.text import interval, number, of_stratum, paid_by, percent, seconds, share

OWN = "tokens / rounds as SGLang counts: above 1.0 even when nothing is accepted, so never gated"


@dataclass(frozen=True, slots=True)
class Number:
    """One row: what it is called, its value with its interval, and its formula or what it is held against."""

    label: str
    value: str
    how: str


def numbers(entry: DrafterReport) -> Iterator[Number]:
    """Yield the numbers of a drafter's entry; what was not measured has no row."""
    if entry.acceptance:
        yield from _acceptance(entry.acceptance)
    if entry.sampled:
        yield _sampled(entry.sampled)
    if entry.throughput:
        yield from _throughput(entry.throughput)
    if entry.losslessness:
        yield _same_text(entry.losslessness)
    if entry.break_even:
        yield from _break_even(entry.break_even)
    yield from _sweep(entry)


def provenance(entry: DrafterReport) -> str:
    """Return what the numbers were measured on, in one sentence."""
    server, workload = entry.server, entry.workload
    dropped = len(entry.acceptance.dropped) if entry.acceptance else 0
    parts = [f"{workload.prompts} prompts of workload {workload.name}" if workload else ""]
    parts.append(f"{dropped} left out" if dropped else "")
    if server:
        parts.append(f"SGLang {server.version or '?'} on {server.device}")
    parts.append(f"{seconds(sum(p.seconds for p in entry.phases))} in all")
    return ", ".join(part for part in parts if part) + "; [low, high] are 95 % intervals over prompts"


def _acceptance(a: Acceptance) -> Iterator[Number]:
    length = a.accept_length
    yield Number(
        "accept length",
        f"{interval(length)} tokens/round of at most {a.max_accept_length}",
        f"1 + {a.accepted:,} accepted / {a.rounds:,} rounds, {length.n} prompts",
    )
    yield Number("SGLang's own", number(a.sglang_accept_length), OWN)
    positions = "; ".join(f"{i}: {interval(p)}" for i, p in enumerate(a.by_position, 1))
    yield Number("by position", positions, "share of rounds with at least i drafts accepted")
    blind = f" and blind control {interval(a.blind)}" if a.blind else " (no blind control was run)"
    same = a.same_places
    where = (
        f"; {interval(same.p1)} over {interval(same.blind)} at {same.rounds:,} places where both started a round"
        if same
        else ""
    )
    yield Number(
        "1st position",
        f"{interval(a.by_position[0])} against floor {interval(a.floor)}{blind}",
        f"margin {interval(a.p1_margin)}, paired by prompt{where}",
    )
    if a.length_margin:
        yield Number(
            "over blind",
            f"{interval(a.length_margin)} tokens/round",
            f"accept length less the blind control's, {interval(a.blind_accept_length)}, or 1 + floor",
        )
    parts = a.by_workload
    if len(parts) > 1:
        shown = "; ".join(f"{name}: {of_stratum(p.accept_length)}" for name, p in parts.items())
        yield Number("by workload", shown, "accept length")


def _throughput(t: Throughput) -> Iterator[Number]:
    rate = t.tok_per_s
    streams = "" if t.concurrency == 1 else f", {t.concurrency} streams in flight"
    yield Number(
        "tok/s",
        f"{interval(rate)} of one stream",
        f"tokens / decode seconds after the first, {rate.n} prompts{streams}",
    )
    if t.baseline_tok_per_s:
        source: str = t.baseline_source or "measured"
        if t.baseline_age_s is not None:
            source = f"{source}, {seconds(t.baseline_age_s)} old"
        yield Number("baseline tok/s", interval(t.baseline_tok_per_s), f"without speculation, {source}")
    if t.speedup:
        yield Number("speedup", f"{interval(t.speedup)} x", "tok/s over baseline tok/s, paired by prompt")
    if t.end_to_end_speedup:
        yield Number(
            "whole requests",
            f"{interval(t.end_to_end_speedup)} x",
            f"first-token time included, paired by prompt: {number(t.end_to_end_tok_per_s)} over "
            f"{number(t.baseline_end_to_end_tok_per_s)} tok/s",
        )
    overhead = t.client_overhead.drafter if t.client_overhead else None  # reports of older versions have none
    if overhead:
        yield Number(
            "client overhead",
            f"{percent(overhead.share)} of a request's time",
            f"outside the server's own: {1000 * overhead.per_request_s:.1f} ms of each of "
            f"{overhead.requests} requests",
        )
    for point in t.curve or ():
        yield Number(
            f"{point.concurrency} stream{'s' * (point.concurrency > 1)}",
            f"speedup {interval(point.speedup)} x" if point.speedup else f"{interval(point.tok_per_s)} tok/s",
            f"{number(point.aggregate_tok_per_s)} tok/s all streams together",
        )


def _sampled(s: Sampled) -> Number:
    return Number(
        f"at {s.temperature:g}",
        f"accept length {interval(s.accept_length)}, {interval(s.over_greedy)} x the greedy one",
        f"sampled at temperature {s.temperature:g}, one text per prompt; no part of the verdict",
    )


def _same_text(found: Losslessness) -> Number:
    value = f"{found.identical} of {found.compared} prompts"
    parts = len(found.divergences)
    odd = parts if found.unexplained is None else found.unexplained  # reports of older versions never asked
    if parts:
        value += f"; {parts - odd} part where the target's two best tokens nearly tie, {odd} elsewhere"
    if (excess := found.odd_tokens) is not None:
        own, plain = (f"{side.odd} of {side.tokens}" for side in (excess.drafter, excess.baseline))
        value += f"; the target would not have said {own} tokens with the drafter, {plain} without"
    return Number("same text", value, "with and without speculation, greedily, token by token")


_HOW = {
    "one-boot": "pinned on one boot of all chains",
    "own-boot": "a boot of its own",
    "attached": "the attached server",
    "lower-estimate": "lower estimate",
    "skipped": "skipped",
}


def _sweep(entry: DrafterReport) -> Iterator[Number]:
    rows, best = entry.sweep, entry.sweep_best
    if not rows or not best:
        return
    proved = bool(best.parity and best.parity.shown)
    for row in rows:
        how = [_HOW[row.how]]
        if row.over_own:
            how.append(f"{interval(row.over_own)} x over {best.own}")
        if row.apart:
            how.append("compared with requests of another time")
        if row.how == "one-boot":
            how += [] if proved else ["speed not shown to equal a boot of its own"]
            how += [f"--specprobe-sweep={row.setting} alone boots it on its own"] if row.tok_per_s is None else []
        elif row.accept_length is None:
            how.append(row.note)
        yield Number(f"at {row.setting}", _setting(row), "; ".join(how))
    if best.parity:
        yield _parity(best.parity)
    yield _best(best, untimed=sum(row.accept_length is not None and row.tok_per_s is None for row in rows))


def _setting(row: SweepArm) -> str:
    if row.accept_length is None:
        return "not measured" if row.bracket is None else _bracket(row.bracket)
    length = f"accept length {interval(row.accept_length)} of at most {row.max_accept_length}"
    if row.tok_per_s is None:
        return f"{length}; its times are not compared"
    rate = f"{interval(row.tok_per_s)} tok/s"
    parts = [f"speedup {interval(row.speedup)} x, {rate}" if row.speedup else rate]
    parts.append(length)
    if row.break_even:
        parts.append(f"break-even {interval(row.break_even)}")
    verdict = row.verdict or "no verdict"
    open_ = f" ({' or '.join(row.candidates)})" if verdict == "undecided" else ""
    return f"{verdict}{open_}: {', '.join(parts)}"


def _bracket(bracket: Predicted) -> str:
    length = f"accept length {number(bracket.accept_length_low)} to {number(bracket.accept_length_high)}"
    if bracket.speedup_low is None:
        return length
    return f"speedup {number(bracket.speedup_low)} to {number(bracket.speedup_high)} x, {length}"


def _parity(parity: Parity) -> Number:
    shown = "the same speed" if parity.shown else "not shown to be the same"
    return Number(
        "shared boot",
        f"{interval(parity.ratio)} x as fast as {parity.setting} on a boot of its own: {shown}",
        f"in turns, all of it wanted within {share(parity.bound)}; {parity.identical} of {parity.compared} "
        "prompts with the same tokens and the same accept counts on both",
    )


def _best(best: SweepBest, *, untimed: int) -> Number:
    each = f"each setting's interval at {best.confidence:.2%}, so that all {best.settings} hold at once with 95 %"
    if best.setting == best.own:
        value = f"{best.own}, the profile's own: no other setting was faster"
    else:
        sure = "surely faster" if best.surely_better else "not surely faster"
        value = f"{best.setting}: {interval(best.over_own)} x over the profile's own {best.own}, {sure}"
    if untimed:
        value += f" of those whose times can be compared; {untimed} cannot"
    if best.concurrency > 1:
        each += f"; {best.concurrency} streams in flight"
    if best.fallback:
        each += f"; one boot per setting, since {best.fallback}"
    return Number("best setting", value, each)


def _break_even(point: BreakEven) -> Iterator[Number]:
    intervals = point.intervals
    length = interval(intervals.accept_length) if intervals else number(point.accept_length)
    headroom = interval(intervals.headroom) if intervals else number(point.headroom)
    yield Number(
        "break-even",
        f"accept length {length} of at most {point.max_accept_length}",
        f"round time {1000 * point.round_s:.1f} ms x baseline tok/s",
    )
    yield Number("to pay", str(paid_by(point)), "")
    yield Number(
        "headroom",
        headroom,
        f"accept length at {share(point.p_reach)} acceptance per position over break-even; "
        f"{number(point.ceiling_speedup)} x if every draft were accepted",
    )
