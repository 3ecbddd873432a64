"""Golden files of what lasts from run to run: keys, history lines, regression and its gate, stored baselines."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.characterization import adapter, adapter_record, records
from tests.characterization.golden import block, digest, inline
from tests.characterization.world import DOMAINS, chance, prompt_id

Json = dict[str, Any]


def _report() -> Json:
    return records.reports()["mini-cpu"]


def keys() -> str:
    """The key of every record; what each change of a report does to one."""
    found = []
    for name, report in records.reports().items():
        found += [block(f"{name}/{entry['name']}", adapter_record.key(report, entry)) for entry in report["drafters"]]
    changes: dict[str, Callable[[Json, Json], object]] = {
        "no server": lambda _, e: e.update(server=None),
        "no version": lambda _, e: e["server"].update(version=None),
        "no flags": lambda _, e: e["server"].update(flags=None),
        "no digest of the drafter": lambda _, e: e["digests"].update(drafter=None),
        "no digest of the target": lambda _, e: e["digests"].update(target=None),
        "no workload": lambda _, e: e.update(workload=None),
        "not rendered": lambda _, e: e["workload"].update(rendered=None),
        "rendered with the date": lambda _, e: e["workload"].update(undated="u" * 64),
        "thinking": lambda _, e: e["workload"].update(thinking=True),
        "not thinking": lambda _, e: e["workload"].update(thinking=False),
        "longer answers": lambda _, e: e["workload"].update(max_new_tokens=512),
        "as old reports are": lambda _, e: [
            e["workload"].pop(k, None) for k in ("rendered", "undated", "thinking", "max_new_tokens")
        ],
        "environment not recorded": lambda _, e: e["server"].pop("environment", None),
        "environment not known": lambda _, e: e["server"].update(environment=None),
        "another environment": lambda _, e: e["server"].update(environment={"OMP_NUM_THREADS": "7"}),
        "not timed": lambda _, e: e.update(throughput=None),
        "four streams": lambda _, e: e["throughput"].update(concurrency=4),
        "another setting": lambda _, e: e["speculation"].update(num_steps=3, num_draft_tokens=4),
        "more cores": lambda r, _: r["machine"].update(cores=64),
        "on two kinds of GPU": lambda r, e: (
            e["server"].update(device="cuda", local_device="cuda"),
            r["machine"].update(gpus=["A", "B", "A"]),
        ),
        "no GPU seen": lambda r, e: (
            e["server"].update(device="cuda", local_device="cuda"),
            r["machine"].update(gpus=[]),
        ),
        "attached elsewhere": lambda _, e: e["server"].update(device="attached", local_device=None, host="10.1.2.3"),
        "attached on loopback": lambda _, e: e["server"].update(
            device="attached", local_device=None, host="127.0.0.1"
        ),
        "attached to one that is vouched for": lambda _, e: e["server"].update(
            device="attached", local_device="cpu", host=None
        ),
        "attached nowhere": lambda _, e: e["server"].update(device="attached", local_device=None, host=None),
        "a flag more": lambda _, e: e["server"]["flags"].update(enable_something=True),
        "a flag that is off": lambda _, e: e["server"]["flags"].update(enable_something=False, another="", a_list=[]),
        "a long flag": lambda _, e: e["server"]["flags"].update(a_list=list(range(40))),
        "a flag that says who and where": lambda _, e: e["server"]["flags"].update(
            port=1, host="h", model_path="/x", _private=1
        ),
    }
    base = _report()
    before = adapter_record.key(base, base["drafters"][0])
    assert before is not None
    told = []
    for name, change in changes.items():
        report = copy.deepcopy(base)
        change(report, report["drafters"][0])
        after = adapter_record.key(report, report["drafters"][0])
        differences = None if after is None else adapter_record.key_differences(before["parts"], after["parts"])
        told.append(f"{name}: {after and after['id']} {inline(differences)}")
    return "\n".join([*found, block("changes", "\n".join(told))])


def history_lines() -> str:
    """The line of every record, its rows one per prompt; what makes a run busy, crowded or nothing to keep."""
    found = []
    for name, report in records.reports().items():
        for entry in report["drafters"]:
            line = adapter_record.history_line(report, entry, commit="c0ffee")
            key = line and digest(line["line"].pop("key"))
            found.append(block(f"{name}/{entry['name']}", {"key": key, **(line or {})}))
    base = _report()
    told = []
    for finding in (
        "measure.busy-machine",
        "measure.crowded-machine",
        "measure.busy-level",
        "measure.crowded-sweep",
        "measure.stall",
    ):
        for status in ("fail", "pass"):
            report = copy.deepcopy(base)
            entry = report["drafters"][0]
            entry["checks"].append({**entry["checks"][0], "id": finding, "status": status, "severity": "warning"})
            line = adapter_record.history_line(report, entry)
            assert line is not None
            kept = line["line"]
            told.append(f"{finding} {status}: quiet {kept['quiet']} crowded {kept.get('crowded')} id {line['id']}")
    for name in ("acceptance", "throughput"):
        report = copy.deepcopy(base)
        report["drafters"][0][name] = None
        line = adapter_record.history_line(report, report["drafters"][0])
        told.append(f"no {name}: {inline(line and line['line']['values'])}")
    found.append(block("busy machines, and what was not measured", "\n".join(told)))
    for name, lines in records.histories().items():
        found.append(block(f"before each of {name}", {"runs": adapter_record.earlier(lines)}))
    mixed = [{**line, "drafter": "x", "key": {"a": 1}} if at == 1 else line for at, line in enumerate(_past(4))]
    found.append(block("before each, one of another key", {"runs": adapter_record.earlier(mixed)}))
    return "\n".join(found)


# --- simulated histories ----------------------------------------------------------------------------------------


def entry_of(
    report: Json, *, at: int, speed: float = 1.0, accept: float = 1.0, base: float = 1.0, jitter: float = 0.02
) -> Json:
    """A report like the one given, of run ``at``, whose drafter was so much faster and accepted so much more."""
    found = copy.deepcopy(report)
    found["created"] = f"2026-03-{1 + at // 24:02d}T{at % 24:02d}:00:00+00:00"
    entry = found["drafters"][0]
    luck = chance("run", at)
    run = 1 + jitter * (luck.random() - 0.5)
    rows, fast = [], []
    for i in range(30):
        draws = chance("run", at, i)
        rounds = 100 + i
        accepted = round(rounds * min(0.8 * accept * (0.7 + 0.6 * chance("ease", i).random()), 2.0))
        seconds = 0.012 * rounds / speed * run * (0.97 + 0.06 * draws.random())
        plain = 0.010 * (rounds + accepted) / base * (0.97 + 0.06 * draws.random())
        rows.append(
            {
                "id": prompt_id(i),
                "workload": DOMAINS[i % 3],
                "requests": 1,
                "prompt_tokens": 10,
                "completion_tokens": 1 + rounds + accepted,
                "rounds": rounds,
                "accepted": accepted,
                "histogram": [rounds, 0, 0],
                "finish_reason": "stop",
                "blind_rounds": None,
                "blind_hits": None,
                "dropped": "loops" if i == 7 else None,
            }
        )
        fast.append(
            {
                "id": prompt_id(i),
                "workload": DOMAINS[i % 3],
                "requests": 1,
                "tokens": rounds + accepted,
                "decode_s": seconds,
                "total_s": seconds + 0.1,
                "rounds": float(rounds),
                "accepted": accepted,
                "baseline_tokens": rounds + accepted,
                "baseline_decode_s": plain,
            }
        )
    entry["acceptance"]["prompts"], entry["throughput"]["prompts"] = rows, fast
    return found


_THRICE = {"no history", "8 % slower", "invalid", "its key is not known", "broken lines only", "a slow drift"}


def _line(report: Json, **changes: Any) -> Json:
    line = adapter_record.history_line(report, report["drafters"][0], commit="abc")
    assert line is not None
    return {**line["line"], **changes}


def _past(count: int, **more: float) -> list[Json]:
    return [_line(entry_of(_report(), at=at, **more)) for at in range(count)]


def _without(line: Json, *columns: str) -> Json:
    rows = [
        [None if name in columns else value for name, value in zip(line["columns"], row, strict=True)]
        for row in line["rows"]
    ]
    return {**line, "rows": rows}


def _drifting(count: int, step: float) -> list[Json]:
    return [_line(entry_of(_report(), at=at, speed=(1 - step) ** at)) for at in range(count)]


def _busy(report: Json, name: str) -> Json:
    entry = report["drafters"][0]
    entry["checks"].append({**entry["checks"][0], "id": name, "status": "fail", "severity": "warning"})
    return report


def regressions() -> str:
    """Runs held against histories: with drift, steps, one run, none; on busy machines; of other keys; odd lines."""
    base = _report()

    def now(**more: float) -> Json:
        return entry_of(base, at=200, **more)

    other = {**_past(1)[0]["key"], "rendered": "another"}
    elsewhere = {**_past(1)[0]["key"], "engine": "SGLang 9", "flags": {"tp_size": 2}}
    quiet, busy = _past(4), [{**line, "quiet": False} for line in _past(4)]
    failing, invalid = now(), now()
    failing["drafters"][0]["gate_checks"][0]["result"] = "fail"
    failing["drafters"][0]["gate"] = "fail"
    invalid["drafters"][0].update(gate="error", verdict=None, gate_checks=[])
    unknown = now()
    unknown["drafters"][0]["server"]["flags"] = None
    unmeasured = now()
    unmeasured["drafters"][0]["acceptance"] = None
    few = now()
    few["drafters"][0]["acceptance"]["prompts"] = few["drafters"][0]["acceptance"]["prompts"][:1]
    cases: dict[str, tuple[Json, list[Any]]] = {
        "no history": (now(), []),
        "one earlier run": (now(), _past(1)),
        "two earlier runs": (now(), _past(2)),
        "steady": (now(), _past(12)),
        "steady, long ago faster": (
            now(),
            [*_past(12, speed=1.4), *[_line(entry_of(base, at=50 + a)) for a in range(12)]],
        ),
        "8 % slower": (now(speed=0.92), _past(12)),
        "4 % slower": (now(speed=0.96), _past(12)),
        "20 % slower after one run": (now(speed=0.8), _past(1)),
        "10 % faster": (now(speed=1.1), _past(12)),
        "10 % less accepted": (now(accept=0.8), _past(12)),
        "more accepted": (now(accept=1.3), _past(12)),
        "a slow drift": (now(speed=0.99**24), _drifting(24, 0.01)),
        "one bad run among them": (
            now(),
            [
                *_past(5),
                _line(entry_of(base, at=30, speed=0.6)),
                *[_line(entry_of(base, at=40 + a)) for a in range(3)],
            ],
        ),
        "noisy runs": (now(speed=0.9), _past(8, jitter=0.3)),
        "a slower baseline": (now(base=0.8), _past(12)),
        "busy now": (_busy(now(speed=0.7, base=0.7), "measure.busy-machine"), quiet),
        "crowded now": (_busy(now(speed=0.7), "measure.crowded-machine"), quiet),
        "busy then": (now(), busy),
        "busy at first, and slow": (
            now(speed=0.9),
            [*[{**line, "quiet": False} for line in _past(4, speed=0.5)], *_past(20)[4:]],
        ),
        "busy then and now": (_busy(now(), "measure.busy-machine"), busy),
        "busy then in part": (now(speed=0.9), [*quiet, *busy]),
        "crowded then": (now(), [{**line, "quiet": False, "crowded": True} for line in quiet]),
        "no speed then": (
            now(),
            [_without(line, "tokens", "decode_s", "baseline_tokens", "baseline_decode_s") for line in quiet],
        ),
        "no baseline then": (now(), [_without(line, "baseline_tokens", "baseline_decode_s") for line in quiet]),
        "one shared prompt": (few, quiet),
        "its gate failed": (failing, quiet),
        "invalid": (invalid, quiet),
        "its key is not known": (unknown, quiet),
        "nothing measured": (unmeasured, quiet),
        "of another key": (now(), [{**line, "key": elsewhere} for line in quiet]),
        "rendered otherwise": (now(), [{**line, "key": other} for line in quiet]),
        "of another drafter and key": (now(), [{**line, "key": elsewhere, "drafter": "x"} for line in quiet]),
        "from a clock that is ahead": (now(), [{**line, "created": "2027-01-01T00:00:00+00:00"} for line in quiet]),
        "broken lines only": (now(), ["{", '{"schema": 9}', '{"schema": 1}']),
        "a broken line among others": (now(), ["{", *quiet]),
        "the same line twice": (now(), [quiet[0], quiet[0]]),
    }
    found = []
    with adapter_record.quiet():
        for name, (report, past) in cases.items():
            for limit in (0.0, 0.05, 0.15) if name in _THRICE else (0.05,):
                after, kept = adapter_record.remembered(report, past, limit=limit, environ={"CI_COMMIT_SHA": "1f0c"})
                entry = after["drafters"][0]
                told = {
                    "gate": entry["gate"],
                    "checks": [c for c in entry["gate_checks"] if c["name"] == "max_regression"],
                    "reasons": entry["reasons"][len(report["drafters"][0]["reasons"]) :],
                    "kept": [[line["created"], line["commit"], line["gate"]] for line in kept],
                }
                if limit == 0.05:
                    told["history"] = entry["history"] and {
                        **entry["history"],
                        "runs": [r["created"] for r in entry["history"]["runs"]],
                    }
                found.append(block(f"{name}, limit {limit}", told))
    return "\n".join(found)


def kept_histories() -> str:
    """Each record held against each kept history, its own lines left out."""
    found = []
    with adapter_record.quiet():
        for name, report in records.reports().items():
            for which, lines in records.histories().items():
                past = [line for line in lines if line["created"] < report["created"]]
                after, kept = adapter_record.remembered(report, past, limit=0.1)
                told = [
                    [e["gate"], e["history"], [c for c in e["gate_checks"] if c["name"] == "max_regression"]]
                    for e in after["drafters"]
                ]
                told = [
                    [gate, history and {k: v for k, v in history.items() if k != "runs"}, checks]
                    for gate, history, checks in told
                ]
                found.append(block(f"{name} after {which}", {"entries": told, "kept": len(kept)}))
    return "\n".join(found)


def stored_baselines() -> str:
    """What a stored baseline is worth later, and the key it is found by."""
    rate = {"value": 82.0, "low": 79.0, "high": 86.0, "n": 30}
    line = {
        "schema": 1,
        "created": "2026-03-01T00:00:00+00:00",
        "key": {"a": 1},
        "tok_per_s": rate,
        "first_token_s": 0.05,
        "rows": [["code-00", 50, 0.61], ["chat-01", 48, 0.59]],
    }
    other = {**line, "key": {"a": 2}, "created": "2026-09-01T00:00:00+00:00"}
    newer = {**line, "created": "2026-03-02T00:00:00+00:00"}
    files: dict[str, list[Any]] = {
        "no file": [],
        "of another key": [other],
        "the newest of its key": [line, newer, other],
        "the newest first": [newer, line],
        "a line that is none": ["{", {**line, "rows": 1}, line],
    }
    wrong: dict[str, Json] = {
        "no rate": {"tok_per_s": None},
        "outside its interval": {"tok_per_s": {**rate, "low": 83.0}},
        "no time": {"first_token_s": 0.0},
        "endless": {"tok_per_s": {**rate, "high": math.inf}},
        "no rows": {"rows": [[1]]},
    }
    found = [block("two days later", adapter_record.stored_baseline(line, now="2026-03-03T00:00:00+00:00"))]
    found.append(block("before it was made", adapter_record.stored_baseline(line, now="2026-02-28T00:00:00+00:00")))
    found += [
        block(
            name,
            adapter.attempt(
                partial(adapter_record.stored_baseline, {**line, **part}, now="2026-03-03T00:00:00+00:00")
            ),
        )
        for name, part in wrong.items()
    ]
    found += [
        block(name, {"created": adapter_record.stored_lookup(lines, key={"a": 1})}) for name, lines in files.items()
    ]
    spec = {
        "model": "/models/t",
        "server_args": ("--mem-fraction-static", "0.42"),
        "python": "/venv/bin/python",
        "tp": 2,
    }
    asked: Json = {
        "target": "7a",
        "engine": "0.5.17",
        "hardware": "2 x H200",
        "workload": "w1",
        "max_new_tokens": 256,
        "concurrency": 1,
        "rendering": "r1",
        "environ": {"PATH": "/usr/bin", "SGLANG_X": "1", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"},
    }
    for name, more in {
        "a key": {},
        "a key of four streams, thinking, longer": {"concurrency": 4, "thinking": True, "max_new_tokens": 512},
    }.items():
        found.append(block(name, adapter.attempt(partial(adapter_record.stored_key, spec=spec, **{**asked, **more}))))
    return "\n".join(found)
