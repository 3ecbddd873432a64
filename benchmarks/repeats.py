"""Do repeats of one probe agree, and does a run of ten times the prompts fall inside the small run's interval?

Run: ``python -m benchmarks.repeats [--drafter aq_k2_mini] [--repeats 3] [--prompts 320] [--json FILE] [OPTION ...]``.

Every repeat is the product's own command, with boots of its own; other options are handed to it, such as
``--specprobe-server=URL --specprobe-baseline=URL`` of servers that run already (``specprobe serve``). The large run
is the drafter's acceptance alone, on prompts that were held out of all training (fixtures/README.md); the corpus is
that of the interpreter in use. Repeats agree if their verdicts are the same, or one is undecided and names the
other among its candidates. Prints one table; exits with 1 if they do not agree or the large run falls outside.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from fixtures.build.corpus import build_corpus
from pytest_specprobe.report.model.estimate import Estimate
from pytest_specprobe.report.render.text import interval

_ACCEPTANCE = ("specprobe/test_boot.py", "specprobe/test_acceptance.py")
# what --json keeps of an entry: how the server was booted and checked is the same four times
_KEPT = (
    "name", "target", "verdict", "candidates", "reasons", "speculation", "digests", "workload", "acceptance",
    "throughput", "break_even", "losslessness",
)  # fmt: skip


def probe(folder: Path, drafter: str, *args: str) -> dict[str, Any]:
    """Run the product in a folder of its own; return the drafter's entry of its report."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--specprobe-drafter={drafter}", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads((folder / ".specprobe" / "report.json").read_text(encoding="utf-8"))
    entry: dict[str, Any] = next(e for e in report["drafters"] if e["name"] == drafter)
    if entry["acceptance"] is None:
        raise SystemExit(done.stdout[-4000:])
    return entry


def held_out(count: int) -> list[str]:
    """Return prompts that nothing was trained on, half of each domain, as lines of a workload."""
    turns = [turn for turn in build_corpus() if turn.held_out]
    turns.sort(key=lambda turn: hashlib.sha256(turn.prompt.encode()).digest())
    chosen = [t for domain in ("code", "docs") for t in [t for t in turns if t.domain == domain][: count // 2]]
    return [
        json.dumps({"id": f"{turn.domain}-{i:03d}", "workload": turn.domain, "prompt": turn.prompt})
        for i, turn in enumerate(chosen)
    ]


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two verdicts are the same, or one is left open by the other."""
    return not allowed(one).isdisjoint(allowed(other))


def allowed(entry: Mapping[str, Any]) -> set[str]:
    """Return the verdicts that an entry leaves open."""
    return {*entry["candidates"]} if entry["verdict"] == "undecided" else {entry["verdict"]}


def kept(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record needs of an entry."""
    return {key: entry[key] for key in _KEPT}


def shown(estimate: Mapping[str, Any]) -> str:
    """Return an estimate of an entry as reports show it."""
    return interval(Estimate.model_validate(estimate))


def row(name: str, entry: Mapping[str, Any]) -> str:
    """Return one row of the table."""
    acceptance, speed = entry["acceptance"], entry["throughput"]
    verdict = entry["verdict"] or "none"
    if verdict == "undecided":
        verdict += f" ({' or '.join(entry['candidates'])})"
    cells = (
        name, acceptance["accept_length"]["n"], shown(acceptance["accept_length"]),
        shown(speed["speedup"]) if speed and speed["speedup"] else "",
        shown(speed["tok_per_s"]) if speed else "", verdict,
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeats")
    parser.add_argument("--drafter", default="aq_k2_mini")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=320)
    parser.add_argument("--json", type=Path)
    options, more = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory(prefix="specprobe-repeats-") as name:
        folder = Path(name)
        large = folder / "held-out.jsonl"
        large.write_text("\n".join(held_out(options.prompts)), encoding="utf-8")
        many = probe(
            folder / "many", options.drafter, *more, f"--specprobe-workload={large}", "--specprobe-baseline=none",
            "--no-specprobe-blind", *_ACCEPTANCE,
        )  # fmt: skip
        runs = [probe(folder / f"run-{i}", options.drafter, *more) for i in range(options.repeats)]
    same = all(agree(one, other) for one, other in combinations(runs, 2))
    small, value = runs[0]["acceptance"]["accept_length"], many["acceptance"]["accept_length"]["value"]
    inside = small["low"] <= value <= small["high"]
    told = f"{'agree' if same else 'DISAGREE'}; the large run's accept length is {'inside' if inside else 'OUTSIDE'}"
    lines = [
        "| run | prompts | accept length | speedup | tok/s | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
        *(row(f"repeat {i}", entry) for i, entry in enumerate(runs, 1)),
        row("ten times the prompts, acceptance alone", many),
        "",
        f"Repeats {told} the small run's interval.",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    if options.json:
        found = {"repeats": [kept(entry) for entry in runs], "many": kept(many)}
        options.json.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0 if same and inside else 1


if __name__ == "__main__":
    sys.exit(main())
