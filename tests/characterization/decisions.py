"""Golden files of decisions: every row of the verdict table and every condition of the gate, on both sides."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.characterization import adapter, adapter_record, records
from tests.characterization.golden import block, digest, inline

Seen = dict[str, Any]


def e(value: float, half: float, n: int = 30) -> dict[str, Any]:
    """An estimate with an even interval."""
    return {"value": value, "low": value - half, "high": value + half, "n": n}


def seen(n: int = 30, **more: Any) -> Seen:
    """What a probe of a drafter saw that reads its target, is below break-even, and has headroom."""
    base: Seen = {
        "accept_length": e(1.5, 0.06, n),
        "margin": e(0.25, 0.04, n),
        "tok_per_s": e(75.0, 2.0, n),
        "speedup": e(0.92, 0.03, n),
        "break_even_length": e(1.6, 0.03, n),
        "round_s": 0.02,
        "depth": 2,
        "accepted": 500,
        "rounds": 1000,
        "blind": True,
        "by_workload": {"code": e(1.7, 0.1, n), "docs": e(1.3, 0.05, n)},
    }
    return {**base, **more}


def fault(
    finding_id: str,
    *,
    severity: str = "error",
    status: str = "fail",
    fix: str = "mend it",
    culprit: str = "drafter-config",
) -> dict[str, Any]:
    return {
        "id": finding_id,
        "severity": severity,
        "status": status,
        "culprit": culprit,
        "seen": f"what {finding_id} saw",
        "expected": "another thing",
        "why": "It matters.",
        "fix": fix,
    }


UNTIMED: Seen = {"tok_per_s": None, "speedup": None, "break_even_length": None}
TABLE: dict[str, tuple[Seen | None, dict[str, Any], list[dict[str, Any]]]] = {
    "not measured": (None, {}, []),
    "broken": (
        seen(),
        {},
        [fault("vocab.absolute-ids"), fault("measure.pinned"), fault("proof.adaptive", severity="warning")],
    ),
    "broken before anything was measured": (
        None,
        {},
        [fault("wiring.fc"), fault("vocab.order", fix="another", culprit="target")],
    ),
    "invalid": (
        seen(),
        {},
        [
            fault("measure.pinned"),
            fault("measure.one-token", culprit="engine"),
            fault("measure.stall", severity="warning"),
        ],
    ),
    "a warning decides nothing": (
        seen(),
        {},
        [fault("measure.stall", severity="warning"), fault("rope.x", severity="info")],
    ),
    "a skipped check decides nothing": (
        seen(),
        {},
        [fault("vocab.order", status="skip"), fault("measure.pinned", status="pass")],
    ),
    "uncorrelated": (seen(margin=e(-0.05, 0.02)), {}, []),
    "uncorrelated, though it pays": (seen(margin=e(-0.05, 0.02), speedup=e(1.2, 0.05)), {}, []),
    "uncorrelated, not shown to read": (seen(margin=e(0.01, 0.03)), {}, []),
    "uncorrelated, nothing accepted": (seen(margin=e(-0.05, 0.02), accepted=0), {}, []),
    "uncorrelated of few prompts": (seen(margin=e(-0.05, 0.02, 20), n=20), {}, []),
    "uncorrelated without a blind control": (seen(margin=e(-0.05, 0.02), blind=False), {}, []),
    "undecided of few prompts that straddle": (seen(margin=e(0.01, 0.03, 20), n=20), {}, []),
    "undecided of few prompts, nothing accepted": (seen(margin=e(0.0, 0.01, 20), n=20, accepted=0), {}, []),
    "profitable": (seen(speedup=e(1.2, 0.05)), {}, []),
    "profitable, less than the gate asks": (seen(speedup=e(1.2, 0.05)), {"min_speedup": 1.3}, []),
    "profitable without a blind control": (seen(speedup=e(1.2, 0.05), blind=False), {}, []),
    "finetune without a blind control": (seen(blind=False), {}, []),
    "finetune without a blind control, accepted": (
        seen(blind=False),
        {"accept_verdicts": ("finetune", "uncorrelated")},
        [],
    ),
    "verify-bound": (seen(break_even_length=e(2.8, 0.05), speedup=e(0.6, 0.03)), {}, []),
    "finetune": (seen(), {}, []),
    "finetune, out of reach": (seen(break_even_length=e(3.3, 0.05), speedup=e(0.5, 0.03)), {"min_headroom": 0.5}, []),
    "undecided about speedup": (seen(speedup=e(1.0, 0.03)), {}, []),
    "undecided about speedup, far from a threshold by luck": (seen(speedup=e(1.02, 0.03)), {}, []),
    "undecided about headroom": (seen(break_even_length=e(2.2, 0.04)), {}, []),
    "undecided about both": (seen(speedup=e(0.99, 0.03), break_even_length=e(2.2, 0.06)), {}, []),
    "undecided without a baseline": (seen(**UNTIMED), {}, []),
    "undecided, too close": (seen(speedup=e(1.0001, 0.03)), {}, []),
    "few prompts, else profitable": (seen(n=23, speedup=e(1.2, 0.05, 23)), {}, []),
    "enough prompts": (seen(n=24, speedup=e(1.2, 0.05, 24)), {}, []),
    "on a crowded machine": (seen(), {}, [fault("measure.crowded-machine", severity="warning")]),
    "on a crowded machine, profitable": (
        seen(speedup=e(1.2, 0.05)),
        {},
        [fault("measure.crowded-machine", severity="warning")],
    ),
    "on a crowded machine, uncorrelated": (
        seen(margin=e(-0.05, 0.02)),
        {},
        [fault("measure.crowded-machine", severity="warning")],
    ),
    "on a busy machine": (seen(), {}, [fault("measure.busy-machine", severity="warning")]),
}


def verdicts() -> str:
    """Every row of the table, whole."""
    return "\n".join(block(name, adapter.decision(s, g, f)) for name, (s, g, f) in TABLE.items())


def gates() -> str:
    """Each condition of the gate around its threshold; only what the condition says."""
    found = []
    conditions: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("min_accept_length", "accept_length", {"min_accept_length": 1.5}),
        ("min_speedup", "speedup", {"min_speedup": 1.5}),
        ("min_tok_per_s", "tok_per_s", {"min_tok_per_s": 1.5}),
    )
    for name, where, gate in conditions:
        for low, high in ((1.4, 1.6), (1.5, 1.6), (1.5000001, 1.6), (1.4, 1.5), (1.4, 1.4999), (1.5, 1.5)):
            estimate = {"value": (low + high) / 2, "low": low, "high": high, "n": 30}
            made = adapter.decision({**seen(), where: estimate}, gate)
            found.append(f"{name} {low} {high}: {_check(made, name)} gate {made['gate']}")
    for value in (1.3, 1.6, 1.8, 1.85):
        gate = {"min_accept_length_by_workload": {"code": value, "docs": 1.0, "absent": 1.0}}
        checks = [c for c in adapter.decision(seen(), gate)["gate_checks"] if "." in c["name"]]
        found.append(f"by workload {value}: {inline(checks)}")
    for low, high, n in (
        (-0.1, -0.05, 30),
        (-0.1, 0.0, 30),
        (-0.1, 0.1, 30),
        (0.0, 0.1, 30),
        (0.01, 0.1, 30),
        (-0.1, 0.1, 20),
        (-0.1, 0.0, 20),
    ):
        made = adapter.decision(seen(n, margin={"value": (low + high) / 2, "low": low, "high": high, "n": n}), {})
        found.append(f"margin {low} {high} of {n}: {_check(made, 'p1_margin')} {made['candidates']}")
    for n in (2, 23, 24):
        for margin in (e(0.2, 0.05, n), e(-0.2, 0.05, n)):
            made = adapter.decision(seen(n, margin=margin), {})
            told = f"{_check(made, 'min_prompts')} {made['verdict']} {made['gate']}"
            found.append(f"{n} prompts, margin {margin['value']}: {told}")
    for accepted in (
        (),
        ("profitable",),
        ("finetune", "verify-bound"),
        ("undecided",),
        ("verify-bound",),
        ("uncorrelated", "broken"),
    ):
        for name in ("profitable", "verify-bound", "finetune", "undecided about headroom", "uncorrelated"):
            made = adapter.decision(TABLE[name][0], {"accept_verdicts": accepted})
            found.append(
                f"accepts {'/'.join(accepted)}: {name}: {_check(made, 'accept_verdicts')} gate {made['gate']}"
            )
    return block("conditions", "\n".join(found))


def _check(made: Mapping[str, Any], name: str) -> str:
    return inline([[c["result"], c["seen"], c["wanted"]] for c in made["gate_checks"] if c["name"] == name])


def _grid() -> Iterator[tuple[str, Seen]]:
    for n in (12, 30):
        for margin in (-0.05, 0.0, 0.02, 0.2):
            for speedup in (None, 0.7, 0.97, 1.0, 1.02, 1.3):
                for length in (1.3, 2.15, 2.2, 2.25, 3.2):
                    half = 0.04 if n == 30 else 0.06
                    more: Seen = (
                        UNTIMED
                        if speedup is None
                        else {"speedup": e(speedup, half, n), "break_even_length": e(length, half, n)}
                    )
                    yield (
                        f"n={n} margin={margin} speedup={speedup} B={length}",
                        seen(n, margin=e(margin, 0.03, n), **more),
                    )
                    if speedup is None:
                        break


def grid() -> str:
    """Some hundred decisions, one line each: verdict, gate, candidates, how many more prompts, a digest."""
    gate = {"min_speedup": 0.5, "min_accept_length": 1.2}
    made = ((name, adapter.decision(case, gate)) for name, case in _grid())
    told = "\n".join(
        f"{name}: {d['verdict']} {d['gate']} [{' '.join(d['candidates'])}] {d['more_prompts']} {digest(d)}"
        for name, d in made
    )
    return block("grid", told)


def of_records() -> str:
    """Every record decided anew from its own estimates and findings, and what it said itself if that differs."""
    found = []
    for name, entry in records.entries():
        a, t, point = entry["acceptance"], entry["throughput"] or {}, entry["break_even"]
        case: Seen = {
            "accept_length": a["accept_length"],
            "margin": a["p1_margin"],
            "accepted": a["accepted"],
            "rounds": a["rounds"],
            "blind": a["blind"] is not None,
            "tok_per_s": t.get("tok_per_s"),
            "speedup": t.get("speedup"),
            "break_even_length": t.get("break_even_length"),
            "round_s": t.get("round_s"),
            "depth": records.depth_of(entry),
            "by_workload": {
                n: part["accept_length"] for n, part in a["by_workload"].items() if part["accept_length"]
            },
        }
        gate = {"p_reach": point["p_reach"]} if point else {}
        made = adapter.decision(case, gate, entry.get("checks", ()))
        said = {k: entry[k] for k in ("verdict", "candidates", "reasons") if entry[k] != made[k]}
        found.append(block(name, {**made, "the record says": said}))
    return "\n".join(found)


def exits() -> str:
    """Exit codes, one line per case."""
    entries: dict[str, dict[str, Any]] = {
        "pass": {"gate": "pass", "verdict": "profitable"},
        "fail": {"gate": "fail", "verdict": "broken"},
        "inconclusive": {"gate": "inconclusive", "verdict": "undecided"},
        "error": {"gate": "error", "verdict": None},
        "none": {"gate": None, "verdict": None},
        "unsure": {"gate": "pass", "verdict": None},
    }
    found = []
    for status in (0, 1, 2, 3, 4, 5):
        for failures in (
            (),
            ("failed",),
            ("inconclusive",),
            ("impossible",),
            ("failed", "impossible"),
            ("failed", "inconclusive"),
        ):
            for gate, entry in entries.items():
                for static in (False, True):
                    for wanted in ((), ("d",), ("other",)):
                        code = adapter_record.exit_status(
                            status, failures=failures, wanted=wanted, entries={"d": entry}, static=static
                        )
                        found.append((status, failures, gate, static, wanted, code))
    lines = [
        f"{s} {'+'.join(f) or 'no'} failures, gate {g}{', static' if st else ''}, wanted {'+'.join(w) or 'none'}: {c}"
        for s, f, g, st, w, c in found
        if s in {0, 1} and len(f) < 2
    ]
    two = adapter_record.exit_status(
        1, failures=(), wanted=("a", "b"), entries={"a": entries["pass"], "b": entries["inconclusive"]}
    )
    rest = digest([list(map(str, row)) for row in found])
    return block(
        "codes", "\n".join([*lines, f"a pass and an inconclusive one: {two}", f"all {len(found)} cases: {rest}"])
    )
