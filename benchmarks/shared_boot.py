"""Is a step count as fast when it is pinned on one boot of all chains as on a boot of its own?

Run: ``python -m benchmarks.shared_boot [--steps 1,2,3,5] [--compare 2,3] [--prompts 12] [--repeats 2] [--boots 1]``.

Boots the mini family once with all ``--steps`` prebuilt, and once more for each step count of ``--compare``; then
runs the same prompts greedily on each pair in turns (shared, own; own, shared; ...). Two ratios of the shared boot
over the separate one, paired by prompt with 95 % intervals: tok/s by the client's clock, and CPU seconds per token of
all processes of the server, which a busy machine moves far less. Tokens and accept histograms are compared one by
one. Two boots of one server differ too, which no interval over prompts can see: ``--boots N`` does all that with N
new pairs, and gives the geometric mean of their ratios with an interval over boots. Prints a Markdown table;
``--json FILE`` keeps the figures.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pytest_specprobe.measure.request import Estimate, Generation, Prompt
from pytest_specprobe.measure.statistics import combine, resample, student_quantile
from pytest_specprobe.measure.workloads import load_workload
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.pinned_steps import PinnedSteps
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.staging import stage

FIXTURES = Path(__file__).parents[1] / "fixtures"
TOKENS = 64
_BOOT_S = 900.0


@dataclass(slots=True)
class Side:
    """One side of a comparison: every request, and the CPU seconds that the server spent on it."""

    server: OwnedServer
    pinned: PinnedSteps | None
    steps: int
    done: list[tuple[Generation, float]] = field(default_factory=list)

    def turn(self, prompt: Prompt) -> None:
        """Run one prompt; the step count is pinned and proved before, and proved after."""
        if self.pinned is not None:
            self.pinned.pin(self.steps)
        self.server.client.flush()
        before = _cpu_s(self.server)
        generation = self.server.client.generate(prompt, max_new_tokens=TOKENS, ignore_eos=True)
        self.done.append((generation, _cpu_s(self.server) - before))
        if self.pinned is not None:
            self.pinned.verify()


def compare(shared: Side, alone: Side, prompts: Sequence[Prompt], *, repeats: int) -> dict[str, Any]:
    """Return the figures of one step count."""
    for side in (shared, alone):
        side.turn(prompts[0])
        side.done.clear()
    for repeat in range(repeats):
        for at, prompt in enumerate(prompts):
            for side in (shared, alone) if (at + repeat) % 2 == 0 else (alone, shared):
                side.turn(prompt)
        sys.stderr.write(f"{shared.steps} steps: round {repeat + 1} of {repeats}\n")
    pairs = list(zip(shared.done, alone.done, strict=True))
    return {
        "steps": shared.steps,
        "tok_per_s": asdict(_ratio(shared, alone, prompts, _rate)),
        "cpu_s": asdict(_ratio(shared, alone, prompts, _work)),
        "requests": len(pairs),
        "rounds": sum(g.rounds or 0 for g, _ in shared.done),
        "tokens": sum(g.completion_tokens for g, _ in shared.done),
        "identical": sum((a.output_ids, a.histogram) == (b.output_ids, b.histogram) for (a, _), (b, _) in pairs),
    }


def main() -> None:
    """Boot, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", default="1,2,3,5")
    parser.add_argument("--compare", default="2,3")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--boots", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    steps, compared = ([int(k) for k in text.split(",")] for text in (args.steps, args.compare))
    rows = []
    for number in range(args.boots):
        for row in one_boot(tuple(steps), compared, prompts=args.prompts, repeats=args.repeats):
            rows.append({"boot": number, **row})
            sys.stdout.write(_table(rows)[-1] + "\n")
            sys.stdout.flush()
    over = [across([r for r in rows if r["steps"] == k]) for k in compared] if args.boots > 1 else []
    found = {
        "candidates": steps,
        "tokens_per_request": TOKENS,
        "prompts": args.prompts,
        "rows": rows,
        "over_boots": over,
    }
    sys.stdout.write("\n".join(_table([*rows, *over])) + "\n")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def one_boot(steps: tuple[int, ...], compared: Sequence[int], *, prompts: int, repeats: int) -> list[dict[str, Any]]:
    """Boot the shared server and, one after the other, those it is compared with; return a row for each."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        drafter = stage(FIXTURES / "aq_k2_mini", cache=folder / "cache", target_positions=2048).path

        def up(k: int, candidates: tuple[int, ...] = ()) -> OwnedServer:
            log = folder / f"{'shared' if candidates else k}.log"
            return stack.enter_context(
                boot(chain_spec(drafter, k, candidates=candidates), log_path=log, timeout_s=_BOOT_S)
            )

        shared = up(compared[0], steps)
        pinned = PinnedSteps(shared.client, steps=compared[0])
        given = [
            Prompt(id=c.id, workload=c.workload, text=c.text, input_ids=shared.client.tokenize_chat(c.messages))
            for c in load_workload("mini", root=Path()).first(prompts).chats
        ]
        rows = []
        for k in compared:
            alone = up(k)
            rows.append(compare(Side(shared, pinned, k), Side(alone, None, k), given, repeats=repeats))
            alone.close()
        return rows


def across(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one step count's ratios over several boots: geometric mean, Student's interval over boots."""
    found: dict[str, Any] = {"steps": rows[0]["steps"]}
    for name in ("tok_per_s", "cpu_s"):
        logs = np.log([row[name]["value"] for row in rows])
        half = student_quantile(1.96, len(rows) - 1) * logs.std(ddof=1) / np.sqrt(len(rows))
        mean = logs.mean()
        value, low, high = (float(np.exp(x)) for x in (mean, mean - half, mean + half))
        found[name] = asdict(Estimate(value=value, low=low, high=high, n=len(rows)))
    return found | {name: sum(row[name] for row in rows) for name in ("requests", "rounds", "tokens", "identical")}


def chain_spec(drafter: Path, k: int, *, candidates: tuple[int, ...] = (), **env: str) -> ServerSpec:
    """Return the mini pair's server with a chain of ``k`` steps, which may be pinned to ``candidates``."""
    return ServerSpec(
        model=str(FIXTURES / "mini_k25"),
        drafter=drafter,
        speculation=Speculation(num_steps=k, eagle_topk=1, num_draft_tokens=k + 1),
        device="cpu",
        mla=True,
        candidates=candidates,
        env=tuple(env.items()),
    )


def _cpu_s(server: OwnedServer) -> float:
    root = psutil.Process(server.pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def _rate(generation: Generation, _: float) -> tuple[float, float]:
    return generation.completion_tokens - generation.first_tokens, generation.last_s - generation.first_s


def _work(generation: Generation, cpu_s: float) -> tuple[float, float]:
    return cpu_s, float(generation.completion_tokens)


def _ratio(shared: Side, alone: Side, prompts: Sequence[Prompt], part: Any) -> Estimate:
    """Return the shared side's sum(first) / sum(second) over the other's, resampled over prompts."""
    resamples = resample([p.workload for p in prompts])
    sides = []
    for side in (shared, alone):
        sums = {p.id: np.zeros(2) for p in prompts}
        for generation, cpu_s in side.done:
            sums[generation.prompt_id] += part(generation, cpu_s)
        above, below = np.array(list(sums.values())).T
        sides.append(resamples.ratio(above, below))
    return combine(np.divide, *sides).estimate()


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    def shown(e: dict[str, float]) -> str:
        return f"{e['value']:.3f} [{e['low']:.3f}, {e['high']:.3f}]"

    return [
        "| steps | tok/s, shared over own boot | CPU seconds per token, shared over own | same tokens and counts |",
        "| --- | --- | --- | --- |",
        *(
            f"| {r['steps']} | {shown(r['tok_per_s'])} | {shown(r['cpu_s'])} | {r['identical']} of {r['requests']} |"
            for r in rows
        ),
    ]


if __name__ == "__main__":
    main()
