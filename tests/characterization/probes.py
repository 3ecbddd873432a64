"""Golden files of whole probes: what each reports, what tests and JUnit get of it, what its servers were asked."""

import hashlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.characterization import adapter, adapter_record
from tests.characterization.adapter_probe import probe
from tests.characterization.golden import block, digest, inline
from tests.characterization.scripts import SCRIPTS, SHOWN, WHOLE
from tests.characterization.world import World, one_pass

Json = dict[str, Any]
_DECISION = ("verdict", "gate", "candidates", "gate_checks", "reasons", "next", "more_prompts", "invalid")
_DIGESTED = ("acceptance", "sampled", "throughput", "break_even", "outlook", "losslessness", "sweep", "predicted")


@cache
def run(name: str) -> Json:
    """The probe of a script, run once."""
    with tempfile.TemporaryDirectory() as folder, adapter_record.quiet():
        return probe(SCRIPTS[name], Path(folder))


def told() -> str:
    """Each probe in short: the decision whole, what did not pass, the estimates as digests and their main numbers."""
    return "\n".join(block(name, _short(run(name))) for name in SCRIPTS)


def _short(made: Json) -> Json:
    found: Json = {name: made[name] for name in ("errors", "notes")}
    found["stored baselines"] = [
        [line["created"], line["tok_per_s"], digest(line)] for line in made["stored baselines"]
    ]
    for entry in made["report"]["drafters"]:
        short: Json = {name: entry[name] for name in _DECISION}
        short["did not pass"] = [
            f"{f['id']} {f['status']} {f['severity']} {f['culprit']}: {f['seen']}"
            for f in entry["checks"]
            if f["status"] != "pass"
        ]
        short["passed"] = sum(f["status"] == "pass" for f in entry["checks"])
        short["checks"] = digest(entry["checks"])
        short |= {name: digest(entry[name]) for name in _DIGESTED if entry[name]}
        short["rest"] = {
            name: digest(entry[name])
            for name in ("speculation", "digests", "phases", "staging", "workload", "server")
        }
        short["history"] = entry["history"] and {k: v for k, v in entry["history"].items() if k != "runs"}
        for part, names in {
            "acceptance": ("accept_length", "p1_margin", "blind", "floor", "coverage", "dropped"),
            "throughput": (
                "tok_per_s",
                "baseline_tok_per_s",
                "baseline_source",
                "speedup",
                "break_even_length",
                "aggregate_tok_per_s",
            ),
        }.items():
            if entry[part]:
                short[f"{part} numbers"] = {name: entry[part][name] for name in names}
        found[entry["name"]] = short
    found["comparisons"] = digest(made["report"]["comparisons"]) if made["report"]["comparisons"] else None
    return found


def whole() -> str:
    return "\n".join(block(name, run(name)["report"]) for name in WHOLE)


def properties() -> str:
    """The JUnit properties of each probe, and what a stored benchmark says beside its numbers."""
    lines = [f"{name}: {inline(run(name)['properties'])} {inline(run(name)['benchmark'])}" for name in SCRIPTS]
    return block("properties", "\n".join(lines))


def calls() -> str:
    """What the servers were asked: one probe turn by turn, of the others the boots and a digest of the turns."""
    found = [block("a stall", "\n".join(run("a stall")["calls"]))]
    for name in SCRIPTS:
        asked = run(name)["calls"]
        boots = [call for call in asked if call.startswith("boot ")]
        found.append(block(name, {"boots": boots, "calls": len(asked), "turns": digest(asked)}))
    return "\n".join(found)


def terminal() -> str:
    """The screens of some probes whole."""
    return "\n".join(block(name, adapter_record.terminal(run(name)["report"])) for name in SHOWN)


def renderings() -> str:
    """Digests of the renderings of every probe, a page of those that are shown."""
    lines = []
    for name in SCRIPTS:
        report = run(name)["report"]
        shown = {"terminal": adapter_record.terminal(report), "markdown": adapter_record.markdown_page(report)}
        if name in SHOWN:
            shown["html"] = adapter_record.html_page(report)
        told = (f"{kind} {hashlib.sha256(text.encode()).hexdigest()[:12]}" for kind, text in shown.items())
        lines.append(f"{name}: {' '.join(told)}")
    return block("renderings", "\n".join(lines))


def history() -> str:
    """Key and history line of each probe: the key's name, and a digest of the line."""
    lines = []
    for name in SCRIPTS:
        report = run(name)["report"]
        for entry in report["drafters"]:
            key, line = adapter_record.key(report, entry), adapter_record.history_line(report, entry)
            lines.append(f"{name}/{entry['name']}: {key and key['id']} {line and digest(line['line'])}")
    return block("history", "\n".join(lines))


def simulated() -> str:
    """Two dozen worlds from requests to verdict, one line each: verdict, gate, main numbers, a digest of all."""
    lines = []
    for at in range(24):
        accept, verify_s = 0.02 + 0.12 * (at % 8), 0.006 + 0.006 * (at // 8)
        world = World(accept=accept, blind=0.06, verify_s=verify_s, prompts=24, length=24, seed=f"world {at}")
        lines.append(f"{at} accept {accept:.2f} round {1000 * verify_s:.1f} ms: {_decided(world)}")
    return block("worlds", "\n".join(lines))


def _decided(world: World) -> str:
    own = one_pass(world, accept=world.accept)
    acceptance = adapter.acceptance(own, blind=one_pass(world, accept=world.blind), drafter_length=600)
    speed = adapter.throughput(
        one_pass(world, accept=world.accept, luck="timed"), baseline=one_pass(world, accept=None)
    )
    made = adapter.decision(
        {
            "accept_length": acceptance["accept_length"],
            "margin": acceptance["p1_margin"],
            "accepted": acceptance["accepted"],
            "rounds": acceptance["rounds"],
            "tok_per_s": speed["tok_per_s"],
            "speedup": speed["speedup"],
            "break_even_length": speed["break_even_length"],
            "round_s": speed["round_s"],
            "by_workload": {name: part["accept_length"] for name, part in acceptance["by_workload"].items()},
        },
        {"min_speedup": 0.9},
    )
    numbers = [acceptance["accept_length"], acceptance["p1_margin"], speed["speedup"], speed["break_even_length"]]
    rest = digest([acceptance, speed, made])
    return f"{made['verdict']} {made['gate']} {made['more_prompts']} {inline(numbers)} {rest}"
