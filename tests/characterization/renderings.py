"""Golden files of renderings: every kept record, and reports in which something is missing or odd."""

import copy
import hashlib
from collections.abc import Callable
from typing import Any

from tests.characterization import adapter_record, records
from tests.characterization.golden import block

Json = dict[str, Any]
_WHOLE = {"mini-cpu", "data-h200-smollm2", "two drafters", "no drafter"}
_PARTING = {"prompt_id": "p", "position": 0, "drafter_token": 1, "baseline_token": 2, "gap": None}


def _reports() -> dict[str, Json]:
    found = {name: {**report, "path": ".specprobe/report.json"} for name, report in records.reports().items()}
    return {**found, **_changed()}


def _pruned(report: Json) -> Json:
    """The report with two prompts, two flags and three phases of each drafter: renderings list them one by one."""
    for entry in report["drafters"]:
        for part in ("acceptance", "throughput"):
            entry[part]["prompts"] = entry[part]["prompts"][:2]
        entry["server"]["flags"] = {
            name: entry["server"]["flags"][name] for name in sorted(entry["server"]["flags"])[:2]
        }
        entry["phases"] = entry["phases"][:3]
        entry["checks"] = [check for check in entry["checks"] if check["status"] != "pass"][:3]
    return report


def _set(name: str, value: Any) -> Callable[[Json], object]:
    return lambda entry: entry.update({name: value})


def _changed() -> dict[str, Json]:
    """One record many times over as a report of many drafters, each time with another field as it may be."""
    base = _pruned(records.reports()["mini-cpu"])
    swept = _pruned(records.reports()["data-h200-smollm2"])

    def wrong(count: int) -> list[Json]:
        plain = {
            "culprit": "engine",
            "seen": "ten of 12",
            "expected": "none",
            "why": "Because.",
            "fix": "mend it",
            "status": "fail",
        }
        kinds = ("warning", "info", "error", "warning")
        return [{**plain, "id": f"measure.odd-{at}", "severity": kinds[at % 4]} for at in range(count)]

    def drop(*names: str) -> Callable[[Json], object]:
        return lambda e: e.update(dict.fromkeys(names))

    changes: dict[str, Callable[[Json], object]] = {
        **{f"gate {g}": _set("gate", g) for g in ("fail", "inconclusive", "error", None)},
        **{
            f"verdict {v}": _set("verdict", v)
            for v in ("broken", "uncorrelated", "profitable", "verify-bound", "undecided", None)
        },
        "nothing measured": drop(
            "acceptance", "throughput", "break_even", "outlook", "losslessness", "history", "staging"
        ),
        "no server": drop("server", "workload", "throughput", "break_even", "losslessness"),
        "no workload": drop("workload"),
        "no blind control": lambda e: e["acceptance"].update(blind=None),
        "one workload": lambda e: e["acceptance"]["by_workload"].pop("docs"),
        "not timed": drop("throughput", "break_even", "outlook", "losslessness"),
        "no baseline": lambda e: (
            e.update(break_even=None, losslessness=None),
            e["throughput"].update(baseline_tok_per_s=None, speedup=None, baseline_source=None),
        ),
        "a stored baseline": lambda e: e["throughput"].update(baseline_source="stored", baseline_age_s=200_000.0),
        "a stored baseline of a day": lambda e: e["throughput"].update(
            baseline_source="stored", baseline_age_s=100_000.0
        ),
        "a declared baseline": lambda e: e["throughput"].update(
            baseline_source="declared", baseline_tok_per_s={"value": 82.0, "low": 82.0, "high": 82.0, "n": 0}
        ),
        "four streams": lambda e: e["throughput"].update(concurrency=4),
        "client overhead": lambda e: e["throughput"].update(
            client_overhead={
                "drafter": {
                    "share": {"value": 0.0123, "low": 0.011, "high": 0.0145, "n": 31},
                    "per_request_s": 0.0021,
                    "requests": 32,
                },
                "baseline": None,
            }
        ),
        "out of reach": lambda e: e["break_even"].update(required_acceptance=None),
        "any acceptance pays": lambda e: e["break_even"].update(required_acceptance=0.0),
        "bare break-even": lambda e: e["break_even"].update(intervals=None),
        "texts part": lambda e: e["losslessness"].update(identical=29, divergences=[_PARTING] * 3, unexplained=1),
        "sampled": lambda e: e.update(
            sampled={
                "temperature": 0.7,
                "accept_length": {"value": 1.31, "low": 1.2, "high": 1.4, "n": 31},
                "over_greedy": {"value": 0.96, "low": 0.9, "high": 1.02, "n": 31},
                "by_position": [],
                "rounds": 1,
                "accepted": 1,
                "histogram": [],
            }
        ),
        "six findings": lambda e: e["checks"].extend(wrong(6)),
        "nine findings, of which reasons tell two": lambda e: (
            e["checks"].extend(wrong(9)),
            e["reasons"].extend(["measure.odd-0 (engine): saw it", "measure.odd-2"]),
        ),
        "open conditions": lambda e: e["gate_checks"].extend(
            [
                {"name": "min_speedup", "result": "fail", "seen": "0.9 [0.8, 1]", "wanted": "above 1.1"},
                {"name": "p1_margin", "result": "inconclusive", "seen": "0 [-1, 1]", "wanted": "above 0"},
            ]
        ),
        "large and small numbers": lambda e: (
            e["acceptance"].update(rounds=1_234_567, sglang_accept_length=999.96),
            e["throughput"].update(tok_per_s={"value": 123456.7, "low": 999.4, "high": 99.96, "n": 31}),
        ),
        "hours of phases": lambda e: e["phases"].append(
            {"name": "boot", "what": "drafter", "status": "failed", "seconds": 8000.0}
        ),
        "a history of none": lambda e: e.update(history=_history(runs=0)),
        "a history with changes": lambda e: e.update(history=_history(runs=3)),
        "a history of one, not kept, noisy": lambda e: e.update(history=_history(runs=1, kept=False, noisy=True)),
        "a history with a problem": lambda e: e.update(history={**_history(runs=0), "problem": "not readable"}),
        "a history with a problem, not kept": lambda e: e.update(
            history={**_history(runs=0, kept=False), "problem": "not readable"}
        ),
        "dropped prompts": lambda e: e["acceptance"]["dropped"].update({"code-02": "loops", "docs-03": "loops"}),
        "a long name": lambda e: e.update(name="a-drafter-of-a-name-as-long-as-may-be", target="target.of.another"),
    }
    many = {**copy.deepcopy(base), "drafters": []}
    for name, change in changes.items():
        entry = copy.deepcopy(base["drafters"][0])
        entry["name"] = name
        change(entry)
        many["drafters"].append(entry)
    for name, best in {
        "surely best": {"surely_better": True, "fallback": "the pin was refused", "concurrency": 4},
        "parity shown": {"parity": {**(swept["drafters"][0]["sweep_best"]["parity"] or {}), "shown": True}},
        "no parity": {"parity": None},
        "the own one is best": {"setting": swept["drafters"][0]["sweep_best"]["own"]},
    }.items():
        entry = copy.deepcopy(swept["drafters"][0])
        entry["name"] = f"sweep, {name}"
        entry["sweep_best"].update(best)
        rows = entry["sweep"]
        rows[-1].update(
            apart=True, verdict="undecided", candidates=["profitable", "finetune"], break_even=None, speedup=None
        )
        rows.append(
            {
                **dict.fromkeys(rows[0]),
                "setting": "2/4/8",
                "how": "skipped",
                "note": "not run: it died",
                "own": False,
                "best": False,
                "apart": False,
                "candidates": [],
                "max_accept_length": 3,
                "by_position": [],
                "histogram": [],
            }
        )
        rows.append(
            {
                **rows[-1],
                "setting": "1/1/2",
                "how": "lower-estimate",
                "note": "see there",
                "bracket": {
                    "num_steps": 1,
                    "bracket": True,
                    "tok_per_s_low": None,
                    "tok_per_s_high": None,
                    "accept_length_low": 1.3,
                    "accept_length_high": 1.5,
                    "speedup_low": 0.7,
                    "speedup_high": 1.4,
                },
            }
        )
        rows.append(
            {
                **rows[-1],
                "setting": "3/1/4",
                "bracket": {**rows[-1]["bracket"], "speedup_low": None, "speedup_high": None},
            }
        )
        many["drafters"].append(entry)
    both = copy.deepcopy(base)
    both["drafters"].append({**both["drafters"][0], "name": "other"})
    estimates = {"value": 1.5, "low": 1.4, "high": 1.6, "n": 30}
    ranked = {
        "measure": "accept_length",
        "order": ["other", "aq_k2_mini"],
        "estimates": {"other": {**estimates, "value": 1.7}, "aq_k2_mini": estimates},
        "lead": {},
        "chances": {},
        "winner": "other",
        "prompts": 30,
    }
    both["comparisons"] = [
        {"target": "mini_k25", "accept_length": ranked, "speed": {**ranked, "measure": "speedup", "winner": None}},
        {"target": "t", "accept_length": None, "speed": {**ranked, "measure": "tok_per_s"}},
    ]
    return {"changed": many, "two drafters": both, "no drafter": {**base, "drafters": []}}


def _history(*, runs: int, kept: bool = True, noisy: bool = False) -> Json:
    ratio = {"value": 0.97, "low": 0.93, "high": 1.02, "n": 30}
    change = {
        "measure": "accept_length",
        "trend": "steady",
        "ratio": ratio,
        "references": runs,
        "minimum": 0.05,
        "spread": 0.01,
        "noisy": False,
    }
    values = {"accept_length": ratio, "tok_per_s": ratio}
    return {
        "key": "k1",
        "kept": kept,
        "problem": None,
        "trend": "steady" if runs else None,
        "changes": [
            change,
            {
                **change,
                "measure": "tok_per_s",
                "trend": "cannot tell",
                "noisy": noisy,
                "ratio": None if noisy else ratio,
            },
        ]
        if runs
        else [],
        "runs": [
            {"created": f"2026-03-0{at + 1}T00:00:00+00:00", "commit": None, "values": values} for at in range(runs)
        ],
    }


def terminal() -> str:
    found = [block(name, adapter_record.terminal(report)) for name, report in _reports().items()]
    base = records.reports()["mini-cpu"]
    screens: dict[str, Json] = {
        "colours": {"colour": True},
        "80 columns": {"width": 80},
        "less than it takes": {"width": 20},
    }
    for name, more in screens.items():
        found.append(block(name, adapter_record.terminal(base, **more).replace("\x1b", "ESC")))
    for tone in ("broken", "profitable", None):
        report = copy.deepcopy(base)
        report["drafters"][0].update(
            verdict=tone, gate={"broken": "fail", "profitable": "inconclusive", None: "error"}[tone]
        )
        found.append(
            block(
                f"colours of {tone}",
                "\n".join(adapter_record.terminal(report, colour=True).replace("\x1b", "ESC").split("\n")[:9]),
            )
        )
    return "\n".join(found)


def markdown() -> str:
    found = [block(name, adapter_record.markdown_page(report)) for name, report in _reports().items()]
    odd = copy.deepcopy(records.reports()["mini-cpu"])
    odd["drafters"][0]["reasons"] = ["a `code` *star* | pipe <b> & #1 ~x~ $y$ @you !z [a](b) \\ end"]
    return "\n".join([*found, block("special characters", adapter_record.markdown_page(odd))])


def html() -> str:
    """What a reader reads of two pages, what is other on that of the changed records, and a digest of every page."""
    found, known = (
        [],
        set(adapter_record.html_text(adapter_record.html_page(_pruned(records.reports()["mini-cpu"]))).split("\n")),
    )
    for name, report in _reports().items():
        made = adapter_record.html_page(report)
        lines = adapter_record.html_text(made).split("\n")
        if name == "changed":
            lines = [line for line in lines if line not in known]
        elif name not in _WHOLE:
            lines = [f"{len(lines)} lines"]
        digest = hashlib.sha256(made.encode()).hexdigest()[:12]
        found.append(block(name, "\n".join([*lines, f"the page as bytes: {digest}"])))
    return "\n".join(found)
