"""The product, as the characterization sees it: plain data in, plain data out.

This module and those that begin like it (``adapter_record``, ``adapter_servers``, ``adapter_probe``) alone
import the product here. Code that moves or is renamed changes these; a golden file changes only where behaviour
does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from unittest import mock

from pytest_specprobe.decide import breakeven
from pytest_specprobe.decide.evidence import Evidence
from pytest_specprobe.decide.outlook import outlook as outlook_of
from pytest_specprobe.decide.predicted import predict_shorter
from pytest_specprobe.decide.sweep import cannot_win
from pytest_specprobe.decide.verdict import decide as decide_on
from pytest_specprobe.errors import MeasurementError, SpecprobeError
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.acceptance import Acceptance, measure_acceptance
from pytest_specprobe.measure.boot_variation import check_apart
from pytest_specprobe.measure.checks import validity
from pytest_specprobe.measure.checks.busy_machine import CpuTime, check_load
from pytest_specprobe.measure.checks.foreign_traffic import Prefilled, check_prefilled, check_traffic
from pytest_specprobe.measure.checks.greedy import check_greedy
from pytest_specprobe.measure.checks.loops import loop
from pytest_specprobe.measure.checks.losslessness import Best, check_texts_equal, compare_texts, questions
from pytest_specprobe.measure.checks.odd_tokens import PairedReadings, Reading
from pytest_specprobe.measure.checks.stored_baseline import check_stored
from pytest_specprobe.measure.checks.texts import check_texts, dropped_prompts
from pytest_specprobe.measure.compare import compare_acceptance, compare_speed
from pytest_specprobe.measure.curve import curve as curve_of
from pytest_specprobe.measure.prompt_rows import PromptRow
from pytest_specprobe.measure.request import Estimate, Generation, Prompt
from pytest_specprobe.measure.sampled import check_sampled, measure_sampled
from pytest_specprobe.measure.sweep import Arm, Sweep, Trial, measure_arm, measure_parity
from pytest_specprobe.measure.throughput import KnownBaseline, SpeedRow, Throughput, declared, measure_throughput
from pytest_specprobe.profiles import Gate, Speculation
from pytest_specprobe.report import build
from pytest_specprobe.report.build import as_model
from pytest_specprobe.report.model.checks import GateCheck
from pytest_specprobe.report.model.report import Ranking

Json = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def attempt(make: Callable[[], Any]) -> Any:
    """What is made, or the error in its own words."""
    try:
        return make()
    except SpecprobeError as error:
        return {"error": type(error).__name__, "what": error.what, "culprit": error.culprit, "fix": error.fix}
    except ValueError as error:
        return {"error": "ValueError", "what": str(error)}


def _generations(rows: Rows) -> tuple[Generation, ...]:
    return tuple(Generation(**row) for row in rows)


def _estimate(e: Mapping[str, Any] | None) -> Estimate | None:
    return None if e is None else Estimate(e["value"], e["low"], e["high"], e["n"])


def _finding(f: Mapping[str, Any]) -> Finding:
    return Finding(**f)


def _told(findings: Sequence[Finding] | Finding) -> list[Json]:
    return [asdict(f) for f in ([findings] if isinstance(findings, Finding) else findings)]


# --- estimates --------------------------------------------------------------------------------------------------


def _acceptance(rows: Rows, *, depth: int = 2, blind: Rows | None = None, **more: Any) -> Acceptance:
    control = None if blind is None else _generations(blind)
    return measure_acceptance(_generations(rows), depth=depth, blind=control, **more)


def _throughput(rows: Rows, *, baseline: Rows | Mapping[str, Any] | None = None, **more: Any) -> Throughput:
    """``baseline``: rows of requests, or a known one as a mapping (``{"declared": 80.0}``)."""
    base: Any = None
    if isinstance(baseline, Mapping):
        base = _known(baseline)
    elif baseline is not None:
        base = _generations(baseline)
    return measure_throughput(_generations(rows), baseline=base, **more)


def _known(baseline: Mapping[str, Any]) -> KnownBaseline:
    if "declared" in baseline:
        return declared(baseline["declared"])
    rate = _estimate(baseline["tok_per_s"])
    assert rate is not None
    return KnownBaseline(**{**baseline, "tok_per_s": rate})


def acceptance(rows: Rows, **more: Any) -> Json:
    return build.acceptance_of(_acceptance(rows, **more)).document()


def throughput(rows: Rows, **more: Any) -> Json:
    whole = build.throughput_of(_throughput(rows, **more)).document()
    return {name: value for name, value in whole.items() if name != "curve"}


def curve(levels: Sequence[Mapping[str, Any]]) -> Json:
    """``levels``: the arguments of one throughput pass each."""
    found = curve_of([_throughput(**level) for level in levels])
    points = build.throughput_of(found.points[0], found).document()["curve"]
    return {"points": points, "pays_up_to": found.pays_up_to}


def sampled(rows: Rows, greedy: Rows, *, temperature: float, dropped: Mapping[str, str] | None = None) -> Json:
    held = _acceptance(greedy)
    found = measure_sampled(_generations(rows), held, temperature=temperature, dropped=dropped or {})
    return build.sampled_of(found).document()


def predicted(rows: Rows, speed: Mapping[str, Any] | None, *, depth: int) -> list[Json]:
    timed = None if speed is None else _throughput(**speed)
    found = predict_shorter(_acceptance(rows, depth=depth), timed)
    return [build.predicted_of(bracket).document() | {"can_pay": bracket.can_pay} for bracket in found]


def dropped(rows: Rows) -> dict[str, str]:
    return dropped_prompts(_generations(rows))


def repeats(ids: Sequence[int]) -> str | None:
    return loop(ids)


def ranking(measure: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Json:
    """``runs``: by name the rows of ``acceptance.prompts`` or ``throughput.prompts`` of a report."""
    if measure == "accept_length":
        found = compare_acceptance(
            {n: [PromptRow(**{**r, "histogram": tuple(r["histogram"])}) for r in rows] for n, rows in runs.items()}
        )
    else:
        found = compare_speed({name: [SpeedRow(**row) for row in rows] for name, rows in runs.items()})
    return as_model(Ranking, found).document()


def break_even(**numbers: Any) -> Json:
    """The point of bare numbers, what they read, and the outlook from there."""
    length, least = numbers.pop("accept_length"), numbers.pop("min_headroom")
    point = breakeven.break_even(**numbers)
    look = outlook_of(point, accept_length=length, min_headroom=least)
    read = breakeven.reading(point, length, min_headroom=least)
    told: Json = {"reading": read, "outlook": build.outlook_of(look).document(), "lines": list(look.lines())}
    return build.break_even_of(point).document() | told


def measured_break_even(length: Mapping[str, Any], *, accept_length: float, min_headroom: float, **more: Any) -> Json:
    estimate = _estimate(length)
    assert estimate is not None
    point = breakeven.measured_break_even(estimate, **more)
    look = outlook_of(point, accept_length=accept_length, min_headroom=min_headroom)
    return {"break_even": build.break_even_of(point).document(), "outlook": build.outlook_of(look).document()}


# --- decision ---------------------------------------------------------------------------------------------------


def decision(
    seen: Mapping[str, Any] | None, gate: Mapping[str, Any], findings: Sequence[Mapping[str, Any]] = ()
) -> Json:
    """``seen``: the estimates of ``Evidence`` by name, and ``break_even_length``, ``round_s`` and ``depth``."""
    asked = Gate(**gate)
    found = decide_on(None if seen is None else _evidence(seen, asked), gate=asked, findings=map(_finding, findings))
    checks = [as_model(GateCheck, check).document() for check in found.gate_checks]
    return {
        "verdict": found.verdict,
        "candidates": list(found.candidates),
        "gate": found.gate,
        "gate_checks": checks,
        "reasons": list(found.reasons),
        "next": list(found.next),
        "more_prompts": found.more_prompts,
        "culprit": found.culprit,
    }


def _evidence(seen: Mapping[str, Any], gate: Gate) -> Evidence:
    point = None
    length, margin = _estimate(seen["accept_length"]), _estimate(seen["margin"])
    assert length is not None
    assert margin is not None
    if seen.get("break_even_length") is not None:
        b = _estimate(seen["break_even_length"])
        assert b is not None
        point = breakeven.measured_break_even(
            b, round_s=seen["round_s"], depth=seen.get("depth", 2), p_reach=gate.p_reach
        )
    parts = {name: _estimate(e) for name, e in seen.get("by_workload", {}).items()}
    return Evidence(
        accept_length=length,
        margin=margin,
        accepted=seen.get("accepted", 500),
        rounds=seen.get("rounds", 1000),
        blind=seen.get("blind", True),
        tok_per_s=_estimate(seen.get("tok_per_s")),
        speedup=_estimate(seen.get("speedup")),
        headroom=None if point is None else point.headroom_interval,
        break_even=point,
        by_workload={name: e for name, e in parts.items() if e is not None},
    )


# --- findings ---------------------------------------------------------------------------------------------------


def check_requests(rows: Rows, *, depth: int = 2, plain: Rows = ()) -> list[Json]:
    return _told(validity.check_requests(_generations(rows), depth=depth, plain=_generations(plain)))


def check_acceptance(rows: Rows, *, depth: int = 2, **more: Any) -> list[Json]:
    return _told(validity.check_acceptance(_acceptance(rows, depth=depth), _generations(rows), **more))


def check_throughput(
    rows: Rows, *, baseline: Rows = (), acceptance: Rows | None = None, asked: Mapping[str, int] | int | None = None
) -> list[Json]:
    return _told(
        validity.check_throughput(
            _throughput(rows, baseline=baseline or None),
            _generations(rows),
            baseline=_generations(baseline),
            new_tokens=asked,
            acceptance=None if acceptance is None else _acceptance(acceptance),
        )
    )


def check_text(rows: Rows, *, target: Rows | None = None) -> list[Json]:
    return _told(check_texts(_generations(rows), target=None if target is None else _generations(target)))


def check_reading(
    gaps: Mapping[str, Sequence[float]], *, exact: bool, plain: Mapping[str, Sequence[float]] | None = None
) -> list[Json]:
    return _told(check_greedy(_readings(gaps), exact=exact, plain=_readings(plain or {})))


def _readings(gaps: Mapping[str, Sequence[float]]) -> tuple[Reading, ...]:
    return tuple(Reading(name, "w", tuple(g)) for name, g in gaps.items())


def check_same_texts(
    rows: Rows,
    plain: Rows,
    *,
    best: Mapping[str, tuple[tuple[int, int], float]],
    exact: bool = False,
    odd: tuple[int, int] | None = None,
) -> Json:
    """The comparison, its finding, and what the target is asked; ``odd`` tokens of fifty in every text, by side."""
    own, base = _generations(rows), _generations(plain)
    answers = {name: Best(*said) for name, said in best.items()}
    sides = [_readings({g.prompt_id: [4.0] * n + [0.0] * (50 - n) for g in own}) for n in odd or ()]
    found = compare_texts(own, base, best=answers, exact=exact, readings=PairedReadings(*sides) if sides else None)
    names = dict.fromkeys(g.prompt_id for g in own)
    prompts = [Prompt(id=name, workload="w", text="", input_ids=(1, 2)) for name in names]
    asked = [
        {"id": q.prompt_id, "at": q.position, "before": list(q.input_ids[:4])} for q in questions(own, base, prompts)
    ]
    more: Json = {"finding": asdict(check_texts_equal(found)), "asked": asked}
    return build.losslessness_of(found).document() | more


def check_stored_baseline(rows: Rows, known: Mapping[str, Any] | None) -> list[Json]:
    speed = _throughput(rows, baseline=known)
    return _told(check_stored(speed, None if known is None else _known(known)))


def check_two_boots(rows: Rows) -> list[Json]:
    return _told(check_apart(_generations(rows)))


def check_sampling(rows: Rows, greedy: Rows) -> list[Json]:
    return _told(check_sampled(_generations(rows), _generations(greedy)))


def check_prompt_tokens(passes: Sequence[tuple[str, int, int | None]]) -> list[Json]:
    return _told(check_prefilled([Prefilled(*p) for p in passes]))


def check_log(text: str, *, streams: int) -> list[Json]:
    return _told(check_traffic(text, concurrency=streams))


def check_machine(turns: Sequence[tuple[float, float, float]], *, cores: int, part: Any) -> list[Json]:
    """``turns``: seconds of the machine's CPUs, of our own processes, and of the clock."""
    moments = [(CpuTime(5.0, 3.0, 100.0), CpuTime(5.0 + m, 3.0 + own, 100.0 + s)) for m, own, s in turns]
    with mock.patch("psutil.cpu_count", return_value=cores):
        return _told(check_load(*moments, part=part))


def failed_pass(what: str, culprit: Any, fix: str) -> list[Json]:
    return _told(validity.invalid(MeasurementError(what, culprit=culprit, fix=fix)))


# --- sweep ------------------------------------------------------------------------------------------------------


def _setting(text: str) -> Speculation:
    steps, topk, tokens = map(int, text.split("/"))
    return Speculation(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)


def _arms(trials: Sequence[Mapping[str, Any]], own: str, settings: int, **more: Any) -> tuple[Arm, ...]:
    return tuple(
        measure_arm(
            Trial(
                setting=_setting(t["setting"]),
                how=t["how"],
                requests=_generations(t["rows"]),
                own=_generations(t["own"]),
                baseline=None if t["baseline"] is None else _generations(t["baseline"]),
                apart=t.get("apart", False),
            ),
            own=_setting(own),
            settings=settings,
            **more,
        )
        for t in trials
    )


def sweep(
    trials: Sequence[dict[str, Any]],
    *,
    own: str,
    settings: Sequence[str],
    probe: Mapping[str, Any],
    skipped: Mapping[str, str],
    parity: tuple[Rows, Rows] | None = None,
    gate: Mapping[str, Any] | None = None,
    **more: Any,
) -> Json:
    """Rows, the best, and which of the settings could not win; ``probe``: arguments of the acceptance pass."""
    whole = {name: more.pop(name) for name in ("crowded", "fallback") if name in more}
    both = None if parity is None else measure_parity(_setting(own), *map(_generations, parity))
    if both is None or not both.shown:  # as a sweep does: the own setting's times are then of its own boot
        alone = {"how": "own-boot"}
        trials = [
            trial | alone if (trial["setting"], trial["how"]) == (own, "one-boot") else trial for trial in trials
        ]
    arms = _arms(trials, own, len(settings), **more)
    found = Sweep(
        own=_setting(own),
        settings=tuple(map(_setting, settings)),
        arms=arms,
        skipped={_setting(name): why for name, why in skipped.items()},
        parity=both,
        **{"fallback": None, **whole},
    )
    passed = _acceptance(**probe)
    brackets = predict_shorter(passed, arms[0].throughput)
    return {
        "rows": [
            row.document() for row in build.sweep_of(found, probe=passed, predicted=brackets, gate=Gate(**gate or {}))
        ],
        "best": build.sweep_best_of(found).document(),
        "cannot_win": {name: cannot_win(_setting(name), arms) for name in settings},
    }
