"""Reports of simulated probes: real passes, decisions and composition over made-up requests.

The simulation stands in for a server only: every number in these reports comes out of the package's own code.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pytest_specprobe.decide.breakeven import measured_break_even
from pytest_specprobe.decide.evidence import evidence
from pytest_specprobe.decide.outlook import outlook
from pytest_specprobe.decide.predicted import predict_shorter
from pytest_specprobe.decide.verdict import decide
from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.acceptance import measure_acceptance
from pytest_specprobe.measure.checks.losslessness import compare_texts
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.measure.sweep import Sweep, Trial, measure_arm, measure_parity
from pytest_specprobe.measure.throughput import measure_throughput
from pytest_specprobe.measure.workloads import Workload, load_workload
from pytest_specprobe.probe.phases import Phase
from pytest_specprobe.profiles import Gate, Speculation
from pytest_specprobe.report import build
from pytest_specprobe.report.build import as_model, decided
from pytest_specprobe.report.file import compose
from pytest_specprobe.report.model.report import DrafterReport, Report
from pytest_specprobe.report.read import report_of
from pytest_specprobe.report.store.past import remember
from tests.characterization.adapter_record import decision_of

TOKENS = 160
DOMAINS = ("code", "chat", "math", "summary", "language")
PHASES = (
    ("free", "what holds the GPUs", 0.1), ("inspect", "files of drafter and target", 0.3),
    ("stage", "drafter", 0.2), ("patch", "max_position_embeddings 1024 -> 2048", 0.01), ("boot", "drafter", 31.0),
    ("prove", "settings, log and a canary request", 0.4), ("warm up", "drafter", 0.5),
    ("probe", "acceptance, drafter", 46.0), ("boot", "blind control", 29.0),
    ("probe", "acceptance, blind control", 60.0), ("boot", "baseline", 28.0),
    ("probe", "throughput, interleaved with the baseline", 95.0), ("decide", "verdict and gate", 0.1),
)  # fmt: skip
FLAGS = {
    "version": "0.5.23", "model_path": "/models/t", "port": 40123, "tp_size": 1, "dtype": "float32",
    "attention_backend": "intel_amx", "max_total_num_tokens": 16384, "quantization": None,
    "speculative_draft_model_path": "/cache/staged/d-1", "speculative_num_steps": 2, "disable_radix_cache": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The truth behind a simulated probe: acceptance per position, what steps cost, and a run's own luck."""

    accept: float = 0.6
    blind: float | None = 0.1
    round_s: float = 0.020
    plain_s: float | None = 1 / 82
    depth: int = 2
    prompts: int = 30
    speed: float = 1.0  # of this run: above 1 is slower
    seed: int = 0


def request(rng: np.random.Generator, world: World, i: int, accept: float | None, step_s: float) -> Generation:
    """A request of about ``TOKENS`` tokens; without ``accept`` of a server that does not speculate."""
    arrivals = [1]
    while sum(arrivals) < TOKENS:
        hit = 0
        while accept is not None and hit < world.depth and rng.random() < accept:
            hit += 1
        arrivals.append(hit + 1)
    gaps = step_s * world.speed * rng.lognormal(0, 0.05, size=len(arrivals) - 1)
    times = 100.2 + np.concatenate([[0.0], np.cumsum(gaps)])
    hits = [a - 1 for a in arrivals[1:]]
    ids = tuple(int(t) for t in rng.zipf(1.1, size=sum(arrivals)) % 5000)
    return Generation(
        prompt_id=f"{DOMAINS[i % len(DOMAINS)]}-{i:02d}",
        workload=DOMAINS[i % len(DOMAINS)],
        prompt_tokens=60 + i * 40,
        cached_tokens=0,
        completion_tokens=sum(arrivals),
        output_ids=ids,
        text=" ".join(map(str, ids)),
        finish_reason="length",
        rounds=None if accept is None else len(hits),
        accepted=None if accept is None else sum(hits),
        histogram=None if accept is None else tuple(hits.count(k) for k in range(world.depth + 1)),
        sglang_accept_length=None if accept is None else sum(arrivals) / len(hits),
        start_s=100.0,
        first_s=float(times[0]),
        last_s=float(times[-1]),
        first_tokens=1,
        chunk_tokens=tuple(arrivals),
        chunk_s=tuple(float(t) for t in times),
    )


def requests(
    world: World, accept: float | None, step_s: float, rng: np.random.Generator | None = None
) -> list[Generation]:
    """One pass: every prompt once, on a server with (or without) this acceptance."""
    hard = np.random.default_rng(1).normal(0, 0.08, size=world.prompts)  # a prompt is as hard in every run
    rng = rng or np.random.default_rng(world.seed)
    return [
        request(rng, world, i, None if accept is None else float(np.clip(accept + hard[i], 0.01, 0.98)), step_s)
        for i in range(world.prompts)
    ]


def entry(
    world: World, *, name: str = "aq_k2_mini", gate: Gate | None = None, findings: Sequence[Finding] = ()
) -> dict[str, Any]:
    """The drafter's entry of report.json that a probe of this world writes; every call gives its own copy."""
    text = _entry(world, name, (gate or Gate()).model_dump_json(), tuple(findings))
    copy: dict[str, Any] = json.loads(text)
    return copy


def remembered(whole: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The first entry of a report after it was held against ``folder``'s history and kept; put into the report."""
    found: dict[str, Any] = whole["drafters"][0]
    seen, own = first(whole)
    past = remember(seen, own, decision_of(found), **{"limit": 0.0, "environ": {}, **options})
    found |= decided(own, past.decision, history=past.history).document()
    return found


def first(whole: dict[str, Any]) -> tuple[Report, DrafterReport]:
    """The models of a report and of its first entry, as a file of it is read."""
    seen = report_of(whole)
    return seen, seen.drafters[0]


@cache
def _entry(world: World, name: str, gate_text: str, findings: tuple[Finding, ...]) -> str:
    gate = Gate.model_validate_json(gate_text)
    rng = np.random.default_rng(1000 + world.seed)

    def run(accept: float | None, step_s: float) -> list[Generation]:
        return requests(world, accept, step_s, rng)

    own, speed = run(world.accept, world.round_s), run(world.accept, world.round_s)
    plain = [] if world.plain_s is None else run(None, world.plain_s)
    blind = None if world.blind is None else run(world.blind, world.round_s)
    acceptance = measure_acceptance(own, depth=world.depth, blind=blind, drafter_length=1024)
    throughput = measure_throughput(speed, baseline=plain or None, wall_s=90.0, baseline_wall_s=100.0)
    point = None
    if throughput.break_even_length is not None:
        point = measured_break_even(
            throughput.break_even_length, round_s=throughput.round_s, depth=world.depth, p_reach=gate.p_reach
        )
    decision = decide(evidence(acceptance, throughput, point), gate=gate, findings=findings)
    chats = workload()
    look = point and outlook(point, accept_length=acceptance.accept_length.value)
    lossless = compare_texts(speed, plain) if plain else None
    made = as_model(
        DrafterReport,
        decision,
        name=name,
        target="mini_k25",
        speculation={"num_steps": world.depth, "eagle_topk": 1, "num_draft_tokens": world.depth + 1},
        digests={"drafter": "d1" * 32, "target": "7a" * 32},
        phases=tuple(Phase(*phase[:2], "done", phase[2]) for phase in PHASES),  # type: ignore[arg-type]
        checks=findings,
        staging={"source_digest": "ab" * 32, "patched": {"max_position_embeddings": [1024, 2048]}},
        server={
            "version": "0.5.23",
            "command": ["python3", "-m", "sglang.launch_server", "--model-path", "/models/t"],
            "boot_s": 31.0,
            "device": "cpu",
            "local_device": "cpu",
            "host": None,
            "environment": {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
            "flags": FLAGS,
            "scrubbed": ["PYTEST_VERSION"],
            "baseline_differences": {"disable_overlap_schedule": [False, True]},
        },
        workload={
            "name": chats.name,
            "digest": chats.digest,
            "prompts": len(chats.chats),
            "rendered": "5e" * 32,
            "undated": None,
            "thinking": None,
            "max_new_tokens": 256,
            "cut": 0,
        },
        invalid=(),
        acceptance=build.acceptance_of(acceptance),
        sampled=None,
        throughput=build.throughput_of(throughput),
        break_even=point and build.break_even_of(point),
        outlook=look and build.outlook_of(look),
        losslessness=lossless and build.losslessness_of(lossless),
        sweep=(),
        sweep_best=None,
        predicted=tuple(map(build.predicted_of, predict_shorter(acceptance, throughput))),
        history=None,
    )
    return json.dumps(made.document(), allow_nan=False)


def swept(world: World, *, alone_s: float = 0.020) -> dict[str, Any]:
    """The entry of a probe with a sweep: three chains on one boot, and a tree that was not run.

    ``alone_s`` is a round of the own setting on its own boot; 20 ms on the shared one.
    """
    found = entry(world)
    own, *others = (Speculation(num_steps=k, eagle_topk=1, num_draft_tokens=k + 1) for k in (world.depth, 1, 3))
    tree = Speculation(num_steps=2, eagle_topk=4, num_draft_tokens=8)
    plain = requests(world, None, world.plain_s or 0.012)
    runs = {
        s: requests(replace(world, depth=s.depth, seed=s.depth), world.accept, 0.010 + 0.005 * s.depth)
        for s in (own, *others)
    }
    parity = measure_parity(own, runs[own], requests(replace(world, seed=own.depth), world.accept, alone_s))
    arms = tuple(
        measure_arm(
            Trial(
                setting=s,
                how="one-boot" if parity.shown or s != own else "own-boot",
                requests=runs[s],
                own=runs[own],
                baseline=plain,
            ),
            own=own,
            settings=4,
        )
        for s in runs
    )
    sweep = Sweep(
        own=own,
        settings=(*runs, tree),
        arms=arms,
        skipped={tree: "not run: the server died in phase weights"},
        parity=parity,
        fallback=None,
    )
    probe = measure_acceptance(runs[own], depth=own.depth)
    rows = build.sweep_of(sweep, probe=probe, predicted=(), gate=Gate())
    best = build.sweep_best_of(sweep).document()
    copy: dict[str, Any] = json.loads(
        json.dumps(found | {"sweep": [row.document() for row in rows], "sweep_best": best})
    )
    return copy


def workload() -> Workload:
    return load_workload("default", root=Path())


def report(*entries: dict[str, Any]) -> dict[str, Any]:
    """A whole report, as it comes back from its file."""
    whole = {**compose((), gpus=[]).document(), "drafters": entries}
    back: dict[str, Any] = json.loads(json.dumps(whole, allow_nan=False))
    return back


def fault(finding_id: str, *, severity: str = "error") -> Finding:
    """A finding that failed."""
    return Finding(
        id=finding_id,
        severity=severity,  # type: ignore[arg-type]
        status="fail",
        culprit="drafter-file",
        seen="31,748 of 32,000 entries are absolute ids",
        expected="offsets from the draft id",
        why="SGLang adds the draft id once more: it boots, answers, and accepts nothing.",
        fix="subtract arange(32000) from d2t",
    )
