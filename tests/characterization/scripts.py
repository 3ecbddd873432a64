"""The scripts of simulated probes: what each world is, what is asked for, and the one thing that goes wrong."""

from collections import Counter
from typing import Any

from tests.characterization.adapter_probe import PLAIN_URL, URL, Finding, Script
from tests.characterization.world import Row, World, changed, prompt_id, request

FAST = World(verify_s=0.008)
EVEN = World(accept=0.5, verify_s=0.0148)
SLOW = World(accept=0.38, verify_s=0.0148)
WALL = World(accept=0.45, verify_s=0.030)
RANDOM = World(accept=0.02, blind=0.02, verify_s=0.012)
BLIND = World(accept=0.3, blind=0.31, verify_s=0.012)
FEW = World(prompts=9, verify_s=0.008)
CANARY = 32
ALL = ("acceptance", "throughput")


def fault(
    finding_id: str, *, severity: Any = "error", status: Any = "fail", culprit: Any = "drafter-file"
) -> Finding:
    return Finding(
        id=finding_id,
        severity=severity,
        status=status,
        culprit=culprit,
        seen="31,748 absolute ids",
        expected="offsets",
        why="SGLang adds the draft id once more.",
        fix="subtract arange",
    )


def _one(row: Row, at: int) -> bool:
    return bool(row["prompt_id"] == prompt_id(at))


def looping(count: int, *servers: str) -> Any:
    """The texts of the first prompts loop on these servers."""

    def alter(_: Script, kind: str, __: str, row: Row) -> Row:
        at = int(row["prompt_id"].rpartition("-")[2])
        if kind in servers and at < count:
            return changed(row, output_ids=((3, 4, 5, 6) * 128)[: row["completion_tokens"]])
        return row

    return alter


def stuck(count: int, *servers: str) -> Any:
    """The texts of the first prompts are one token on these servers."""

    def alter(_: Script, kind: str, __: str, row: Row) -> Row:
        at = int(row["prompt_id"].rpartition("-")[2])
        return changed(row, output_ids=(3,) * row["completion_tokens"]) if kind in servers and at < count else row

    return alter


def fields(kind: str, what: str, at: int, **values: Any) -> Any:
    """One prompt's answer in one pass has other fields."""

    def alter(_: Script, server: str, asked: str, row: Row) -> Row:
        return changed(row, **values) if (server, asked) == (kind, what) and _one(row, at) else row

    return alter


def parted(count: int) -> Any:
    """The baseline's texts of the first prompts part from the drafter's at their tenth token."""

    def alter(_: Script, kind: str, __: str, row: Row) -> Row:
        at = int(row["prompt_id"].rpartition("-")[2])
        if kind == "baseline" and at < count:
            return changed(row, output_ids=(*row["output_ids"][:9], 901, *row["output_ids"][10:]))
        return row

    return alter


def stalled(_: Script, kind: str, what: str, row: Row) -> Row:
    if (kind, what) != ("drafter", "fixed") or not _one(row, 5):
        return row
    times = [*row["chunk_s"][:-1], row["chunk_s"][-1] + 0.5]
    return changed(row, chunk_s=tuple(times), last_s=times[-1])


def slower_baseline(_: Script, kind: str, what: str, row: Row) -> Row:
    if kind != "baseline":
        return row
    return changed(row, last_s=row["first_s"] + 3 * (row["last_s"] - row["first_s"]))


def other_drafts(script: Script, kind: str, what: str, row: Row) -> Row:
    """In the throughput pass far less is accepted."""
    if (kind, what) != ("drafter", "fixed") or row["histogram"] is None:
        return row
    at = int(row["prompt_id"].rpartition("-")[2])
    return _again(row, request(script.world, at, accept=0.3, tokens=row["completion_tokens"]))


def shorter(kind: str, at: int, by: int) -> Any:
    """One prompt's answer in the throughput pass is shorter than asked for."""

    def alter(script: Script, server: str, what: str, row: Row) -> Row:
        if (server, what) != (kind, "fixed") or not _one(row, at):
            return row
        accept = script.world.accept if kind == "drafter" else None
        return _again(row, request(script.world, at, accept=accept, tokens=row["completion_tokens"] - by))

    return alter


def _again(row: Row, other: Row) -> Row:
    return changed(other, prompt_tokens=row["prompt_tokens"])


def second_boot() -> Any:
    """From the second timed request of a prompt on, the drafter's server is slower; warm-up is shorter."""
    seen: Counter[str] = Counter()

    def alter(_: Script, kind: str, what: str, row: Row) -> Row:
        if (kind, what) != ("drafter", "fixed") or row["completion_tokens"] <= CANARY:
            return row
        seen[row["prompt_id"]] += 1
        slower = 0.2 if seen[row["prompt_id"]] > 1 else 0.0
        return changed(row, last_s=row["last_s"] + slower * (row["last_s"] - row["first_s"]))

    return alter


def slow_share(_: Script, kind: str, __: str, row: Row) -> Row:
    """The shared boot is slower than a boot of its own, at three steps far slower."""
    if kind != "shared":
        return row
    factor = 6.0 if len(row["histogram"]) == 4 else 1.2
    return changed(row, last_s=row["first_s"] + factor * (row["last_s"] - row["first_s"]))


def pinned(_: Script, kind: str, __: str, row: Row) -> Row:
    """Every round accepts both drafts."""
    if kind != "drafter":
        return row
    rounds = -(-(row["completion_tokens"] - 1) // 3)
    mean = row["completion_tokens"] / rounds
    return changed(row, rounds=rounds, accepted=2 * rounds, histogram=(0, 0, rounds), sglang_accept_length=mean)


CUDA: dict[str, Any] = {"device": "cuda", "target": 'server_args = ["--mem-fraction-static", "0.42"]'}
LOG = "Decode batch, #running-req: {}, #token: 1, #queue-req: 0\n"
SWEEP = ("acceptance", "throughput", "sweep")
SCRIPTS: dict[str, Script] = {
    # --- every row of the verdict table
    "profitable": Script(world=FAST),
    "undecided at break-even": Script(world=EVEN),
    "finetune": Script(world=SLOW),
    "verify-bound": Script(world=WALL),
    "uncorrelated": Script(world=RANDOM),
    "no better than its blind control": Script(world=BLIND),
    "few prompts": Script(world=FEW),
    "broken files": Script(static=(fault("vocab.absolute-ids"), fault("rope.x", severity="warning"))),
    "broken server": Script(
        info={"drafter": {"speculative_algorithm": "EAGLE", "internal": {"speculative_accept_threshold_acc": 0.9}}}
    ),
    "another setting runs": Script(info={"drafter": {"internal": {"speculative_num_steps": 3}}}),
    "files that warn": Script(
        world=FAST, static=(fault("rope.x", severity="warning"), fault("vocab.y", status="pass"))
    ),
    # --- what is asked for
    "nothing asked": Script(steps=()),
    "narrowed to files": Script(steps=("files",), narrowed=True, options={"static": True}),
    "narrowed, broken": Script(
        steps=("files",), narrowed=True, options={"static": True}, static=(fault("vocab.absolute-ids"),)
    ),
    "narrowed to the server": Script(steps=("server",), narrowed=True),
    "acceptance alone": Script(steps=("acceptance",)),
    "missing files": Script(
        problems=(("drafter-file", "drafter 'x' not found: hf download x"), ("machine", "SGLang is not installed"))
    ),
    "the boot dies": Script(dies={"drafter": "the server died in phase weights\nat line 3"}),
    "the blind boot dies": Script(dies={"blind": "the server died in phase capture"}),
    "the baseline's boot dies": Script(dies={"baseline": "out of memory"}),
    "a gate of its own": Script(
        world=FAST,
        gate="min_speedup = 1.3, min_tok_per_s = 300.0, min_accept_length = 1.9, p_reach = 0.6, min_headroom = 1.4, "
        'min_accept_length_by_workload = { code = 1.9, math = 2.2 }, accept_verdicts = ["undecided"]',
    ),
    "a gate that is missed": Script(world=SLOW, gate='min_speedup = 1.1, accept_verdicts = ["profitable"]'),
    "another depth": Script(world=FAST, speculation="4/1/5"),
    "a tree": Script(world=FAST, speculation="3/4/8"),
    # --- baselines and blind controls
    "no baseline": Script(options={"baseline": "none"}),
    "a declared baseline": Script(options={"baseline": 98.0}),
    "a stored baseline": Script(world=FAST, options={"baseline": "stored"}, again=True),
    "a stored baseline of a busy run is not kept": Script(
        world=FAST, options={"baseline": "stored"}, again=True, others=0.2
    ),
    "alternating": Script(world=SLOW, options={"baseline": "alternating"}),
    "alternating, boots differ": Script(world=SLOW, options={"baseline": "alternating"}, alter=second_boot()),
    "no blind control": Script(options={"blind": False}),
    "attached": Script(world=FAST, options={"server": URL, "baseline": PLAIN_URL}),
    "attached, declared": Script(world=FAST, options={"server": URL, "baseline": 98.0}),
    "attached, boot asked": Script(world=FAST, options={"server": URL, "baseline": "boot"}),
    "on a GPU": Script(world=FAST, **CUDA),
    "on a GPU with a blind control": Script(world=FAST, options={"blind": True}, **CUDA),
    "on a GPU without room": Script(world=FAST, device="cuda", drafter="blind = true"),
    "shorter answers, thinking": Script(world=FAST, target="max_new_tokens = 48\nthinking = true"),
    # --- what makes a measurement invalid, and what only warns
    "nothing looks at the text": Script(world=FAST, alter=pinned),
    "many loop": Script(world=FAST, alter=looping(8, "drafter", "blind", "baseline")),
    "few loop": Script(world=FAST, alter=looping(3, "drafter", "blind", "baseline")),
    "nearly all loop": Script(world=FEW, alter=looping(8, "drafter", "blind", "baseline")),
    "one token": Script(world=FAST, alter=stuck(9, "drafter", "blind", "baseline")),
    "one token without a target": Script(world=FAST, alter=stuck(2, "drafter"), steps=("acceptance",)),
    "texts part at near-ties": Script(world=FAST, alter=parted(3), best=0.005),
    "texts part elsewhere": Script(world=FAST, alter=parted(3), best=3.0),
    "texts part elsewhere on a GPU": Script(world=FAST, alter=parted(2), best=3.0, **CUDA),
    "texts part, not asked": Script(world=FAST, alter=parted(2), best=None, **CUDA),
    "not the target's own tokens": Script(world=FAST, gaps=(0.0, 0.0, 0.3, 2.5)),
    "not the target's own tokens, in 16 bits": Script(
        world=FAST, gaps=(*(0.0,) * 30, 2.5), info={"drafter": {"dtype": "bfloat16"}}
    ),
    "no log-probabilities": Script(world=FAST, gaps=()),
    "requests of others": Script(world=FAST, foreign=900),
    "prompt tokens not counted": Script(world=FAST, foreign=None),
    "others in the log": Script(world=FAST, log=LOG.format(9) * 5 + LOG.format(2) * 40),
    "an error in the log": Script(world=FAST, log="Traceback (most recent call last):\nValueError: x\n"),
    "busy": Script(world=SLOW, others=0.2),
    "crowded": Script(world=SLOW, others=0.6),
    "a stall": Script(world=FAST, alter=stalled),
    "a baseline that was slowed down": Script(world=FAST, alter=slower_baseline),
    "passes disagree": Script(world=FAST, alter=other_drafts),
    "a prefix hit": Script(world=FAST, alter=fields("drafter", "natural", 4, cached_tokens=8)),
    "a prefix hit of the baseline": Script(world=FAST, alter=fields("baseline", "fixed", 4, cached_tokens=8)),
    "a prefix hit of the blind control": Script(world=FAST, alter=fields("blind", "natural", 4, cached_tokens=8)),
    "a wrong length": Script(world=FAST, alter=shorter("drafter", 4, 5)),
    "a wrong length of the baseline": Script(world=FAST, alter=shorter("baseline", 4, 5)),
    "a histogram that contradicts": Script(
        world=FAST, alter=fields("drafter", "natural", 4, accepted=1, sglang_accept_length=None)
    ),
    "silent on one request": Script(
        world=FAST,
        alter=fields("drafter", "fixed", 4, rounds=None, accepted=None, histogram=None, sglang_accept_length=None),
    ),
    "a mean of its own": Script(world=FAST, alter=fields("drafter", "natural", 4, sglang_accept_length=9.0)),
    "a server total of others": Script(world=FAST, info={"drafter": {"internal": {"avg_spec_accept_length": 2.9}}}),
    "a request fails": Script(world=FAST, fails={"drafter natural": 23}),
    "a timed request fails": Script(world=FAST, fails={"drafter fixed": 20}),
    "a request of the blind control fails": Script(world=FAST, fails={"blind natural": 23}),
    "the baseline speculates": Script(world=FAST, info={"baseline": {"speculative_algorithm": "EAGLE3"}}),
    "other flags of the baseline": Script(
        world=FAST, info={"baseline": {"dtype": "bfloat16", "disable_overlap_schedule": True}}
    ),
    # --- streams, temperatures, sweeps, several drafters
    "two levels": Script(world=FAST, steps=(*ALL, "curve"), options={"concurrency": (1, 4)}),
    "two levels, a known baseline": Script(
        world=FAST, steps=(*ALL, "curve"), options={"concurrency": (1, 4), "baseline": 98.0}
    ),
    "four streams alone": Script(world=FAST, options={"concurrency": (4,)}, log=LOG.format(5) * 9),
    "eight streams alone": Script(world=FAST, options={"concurrency": (8,)}, log=LOG.format(5) * 9),
    "a stall at the second level": Script(
        world=FAST, steps=(*ALL, "curve"), options={"concurrency": (4, 1)}, alter=stalled
    ),
    "busy at both levels": Script(world=FAST, steps=(*ALL, "curve"), options={"concurrency": (1, 8)}, others=0.2),
    "alternating at two levels": Script(
        world=SLOW, steps=(*ALL, "curve"), options={"baseline": "alternating", "concurrency": (1, 4)}
    ),
    "sampled": Script(world=FAST, steps=("acceptance", "sampled", "throughput"), options={"temperature": 0.8}),
    "sampled, but greedily": Script(
        world=FAST,
        steps=("acceptance", "sampled"),
        options={"temperature": 0.8},
        alter=lambda _, __, what, row: changed(row, output_ids=(1, 2, 3)) if what != "fixed" else row,
    ),
    "sampled, a request fails": Script(
        world=FAST,
        steps=("acceptance", "sampled", "throughput"),
        options={"temperature": 0.8},
        fails={"drafter sampled": 23},
    ),
    "a sweep": Script(world=FAST, steps=SWEEP, options={"sweep": ("1/1/2", "3/1/4", "2/4/8")}),
    "a sweep, pins refused": Script(
        world=FAST, steps=SWEEP, options={"sweep": ("1/1/2", "3/1/4")}, refuses_pins=True
    ),
    "a sweep, an arm dies": Script(
        world=FAST, steps=SWEEP, options={"sweep": ("2/4/8", "1/1/2")}, dies={"arm": "died in phase weights"}
    ),
    "a sweep, counts of an arm contradict": Script(
        world=FAST,
        steps=SWEEP,
        options={"sweep": ("1/1/2", "2/4/8")},
        alter=fields("arm", "fixed", 4, accepted=1, sglang_accept_length=None),
    ),
    "a sweep, a shared boot that rules nothing out": Script(
        world=FAST, steps=SWEEP, options={"sweep": ("1/1/2", "3/1/4", "3/4/12")}, alter=slow_share
    ),
    "a sweep, crowded": Script(world=FAST, steps=SWEEP, options={"sweep": ("1/1/2",)}, others=0.6),
    "a sweep on a GPU without room": Script(
        world=FAST, steps=SWEEP, options={"sweep": ("1/1/2", "3/1/4", "2/4/8")}, **CUDA
    ),
    "a sweep of four streams": Script(world=FAST, steps=SWEEP, options={"sweep": ("1/1/2",), "concurrency": (4,)}),
    "a sweep beside an attached server": Script(
        world=FAST,
        speculation="3/1/4",
        steps=SWEEP,
        options={"sweep": ("1/1/2", "2/1/3", "2/4/8"), "server": URL, "baseline": PLAIN_URL},
    ),
    "two drafters": Script(world=FAST, names=("a", "b"), worlds={"b": World(accept=0.8, verify_s=0.008)}),
    "two drafters, not timed": Script(world=FAST, names=("a", "b"), steps=("acceptance",), options={"blind": False}),
    # --- the past
    "a second run": Script(world=FAST, gate="max_regression = 0.1", again=True),
}
WHOLE = ("profitable", "a sweep", "a request fails")
SHOWN = (
    "few loop",
    "two levels",
    "sampled",
    "a sweep, pins refused",
    "two drafters",
    "crowded",
    "broken server",
    "attached, declared",
    "missing files",
    "a gate that is missed",
)
