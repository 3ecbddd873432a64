"""From what was measured and decided to the models of report.json: every name and number that differs, once.

Invariant: a part that breaks its own model is made all the same, unchecked, so that a report always holds what was
measured; the session that ends holds its report against the models once more and says what is wrong with it.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from pytest_specprobe.decide import breakeven, outlook, sweep
from pytest_specprobe.decide.predicted import Predicted
from pytest_specprobe.decide.verdict import Decision
from pytest_specprobe.measure.acceptance import Acceptance
from pytest_specprobe.measure.checks.losslessness import Losslessness
from pytest_specprobe.measure.curve import Curve
from pytest_specprobe.measure.sampled import Sampled
from pytest_specprobe.measure.sweep import PARITY_BOUND, Arm, Parity, Sweep, simultaneous
from pytest_specprobe.measure.throughput import Throughput
from pytest_specprobe.profiles import Gate, Speculation
from pytest_specprobe.report.model import acceptance as of_acceptance
from pytest_specprobe.report.model import break_even as of_break_even
from pytest_specprobe.report.model import losslessness as of_losslessness
from pytest_specprobe.report.model import sweep as of_sweep
from pytest_specprobe.report.model import throughput as of_throughput
from pytest_specprobe.report.model.base import Model
from pytest_specprobe.report.model.history import History
from pytest_specprobe.report.model.report import DrafterReport

M = TypeVar("M", bound=Model)
DECIDED = ("verdict", "candidates", "gate", "gate_checks", "reasons", "next", "more_prompts")


def as_model(model: type[M], value: object = None, **more: object) -> M:
    """Return the model of a value: its fields are the value's attributes of the same names, but for ``more``."""
    fields: dict[str, Any] = {
        name: more[name] if name in more else getattr(value, name) for name in model.model_fields
    }
    try:
        return model.model_validate(fields)
    except ValidationError:
        return model.model_construct(**fields)


def decided(entry: DrafterReport, decision: Decision, *, history: History | None) -> DrafterReport:
    """Return a drafter's entry with the decision that its past left of it, and that past."""
    return as_model(DrafterReport, entry, **{name: getattr(decision, name) for name in DECIDED}, history=history)


def acceptance_of(measured: Acceptance) -> of_acceptance.Acceptance:
    """Return the ``acceptance`` object."""
    return as_model(
        of_acceptance.Acceptance,
        measured,
        max_accept_length=measured.depth + 1,
        p1_margin=measured.margin,
        by_context=tuple(
            as_model(of_acceptance.ContextPart, c.part, from_=c.start, to=c.stop, beyond_drafter=c.beyond_drafter)
            for c in measured.by_context
        ),
        dropped={row.id: row.dropped for row in measured.dropped},
    )


def sampled_of(measured: Sampled) -> of_acceptance.Sampled:
    """Return the ``sampled`` object."""
    own, over = measured.acceptance, measured.over_greedy
    return as_model(of_acceptance.Sampled, own, temperature=measured.temperature, over_greedy=over)


def throughput_of(measured: Throughput, curve: Curve | None = None) -> of_throughput.Throughput:
    """Return the ``throughput`` object; ``curve`` is of all concurrencies, if there were several."""
    return as_model(
        of_throughput.Throughput,
        measured,
        latency={"drafter": measured.latency, "baseline": measured.baseline_latency},
        client_overhead={"drafter": measured.overhead, "baseline": measured.baseline_overhead},
        curve=None if curve is None else curve.points,
    )


def break_even_of(point: breakeven.BreakEven) -> of_break_even.BreakEven:
    """Return the ``break_even`` object."""
    length, headroom = point.accept_length_interval, point.headroom_interval
    measured = length is not None and headroom is not None
    intervals = {"accept_length": length, "headroom": headroom} if measured else None
    return as_model(of_break_even.BreakEven, point, intervals=intervals)


def outlook_of(look: outlook.Outlook) -> of_break_even.Outlook:
    """Return the ``outlook`` object."""
    lengths = [fact.accept_length for fact in look.published]
    published = as_model(
        of_break_even.Published,
        count=len(lengths),
        best=lengths[0] if lengths else None,
        median=lengths[len(lengths) // 2] if lengths else None,
        at_break_even=look.published_at_break_even,
        best_from=str(look.published[0]) if look.published else None,
    )
    return as_model(of_break_even.Outlook, look, published=published)


def losslessness_of(texts: Losslessness) -> of_losslessness.Losslessness:
    """Return the ``losslessness`` object."""
    divergences = tuple(
        as_model(
            of_losslessness.Divergence,
            parting,
            best_tokens=parting.best and parting.best.tokens,
            gap=parting.best and parting.best.gap,
            near_tie=parting.explained(texts.near_tie),
        )
        for parting in texts.divergences
    )
    return as_model(of_losslessness.Losslessness, texts, unexplained=len(texts.unexplained), divergences=divergences)


def predicted_of(bracket: Predicted) -> of_break_even.Predicted:
    """Return one entry of ``predicted``."""
    return as_model(of_break_even.Predicted, bracket, bracket=True)


def sweep_of(
    measured: Sweep, *, probe: Acceptance, predicted: Sequence[Predicted], gate: Gate
) -> tuple[of_sweep.SweepArm, ...]:
    """Return the ``sweep`` list: one row per setting, the own one first, then as asked for.

    :param probe: the acceptance pass, which tells whether the drafter reads its target.
    :param predicted: brackets of chains shorter than the own one, for settings that could not run.
    """
    arms = {arm.setting: arm for arm in measured.arms}
    brackets = {bracket.num_steps: bracket for bracket in predicted}
    rows = []
    for setting in measured.settings:
        arm = arms.get(setting)
        if arm is not None:
            rows.append(_measured_arm(arm, measured, probe, gate))
        else:
            bracket = brackets.get(setting.num_steps) if setting.eagle_topk == 1 else None
            rows.append(_other_arm(setting, measured.skipped.get(setting, "not run"), bracket))
    return tuple(rows)


def _measured_arm(arm: Arm, measured: Sweep, probe: Acceptance, gate: Gate) -> of_sweep.SweepArm:
    return as_model(
        of_sweep.SweepArm,
        arm.acceptance,
        setting=str(arm.setting),
        how=arm.how,
        note=sweep.note(arm, measured),
        own=arm.setting == measured.own,
        best=arm is measured.best,
        apart=arm.apart,
        max_accept_length=arm.setting.depth + 1,
        bracket=None,
        **(_times(arm, measured, probe, gate) if measured.comparable(arm) else _NO_TIMES),
    )


def _times(arm: Arm, measured: Sweep, probe: Acceptance, gate: Gate) -> dict[str, object]:
    decision, speed = sweep.decide_arm(arm, measured, probe, gate), arm.throughput
    return {
        "verdict": decision.verdict,
        "candidates": decision.candidates,
        "tok_per_s": speed.tok_per_s,
        "speedup": speed.speedup,
        "over_own": arm.over_own,
        "break_even": speed.break_even_length,
        "round_s": speed.round_s,
    }


_UNTIMED = ("verdict", "tok_per_s", "speedup", "over_own", "break_even", "round_s")
_NO_TIMES: dict[str, object] = {"candidates": (), **dict.fromkeys(_UNTIMED)}


def _other_arm(setting: Speculation, why: str, bracket: Predicted | None) -> of_sweep.SweepArm:
    return as_model(
        of_sweep.SweepArm,
        setting=str(setting),
        how="skipped" if bracket is None else "lower-estimate",
        note=why if bracket is None else f"{why}: {sweep.LOWER_ESTIMATE}",
        max_accept_length=setting.depth + 1,
        bracket=bracket and predicted_of(bracket),
        **dict.fromkeys(("own", "best", "apart"), False),
        **dict.fromkeys(("by_position", "histogram"), ()),
        accept_length=None,
        **_NO_TIMES,
    )


def sweep_best_of(measured: Sweep) -> of_sweep.SweepBest:
    """Return ``sweep_best``: the fastest setting, and how sure that is."""
    best, count = measured.best, len(measured.settings)
    return as_model(
        of_sweep.SweepBest,
        measured,
        setting=str(best.setting),
        own=str(measured.own),
        over_own=best.over_own,
        speedup=best.throughput.speedup,
        settings=count,
        concurrency=best.throughput.concurrency,
        confidence=simultaneous(count),
        parity=measured.parity and parity_of(measured.parity),
    )


def parity_of(parity: Parity) -> of_sweep.Parity:
    """Return ``sweep_best.parity``."""
    return as_model(of_sweep.Parity, parity, setting=str(parity.setting), bound=PARITY_BOUND)
