"""Simulated histories: runs of one key whose truth is known."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from pytest_specprobe.report.store.history import Row, Run
from pytest_specprobe.report.store.key import Key

DOMAINS = ("code", "chat", "math", "summary", "language")
KEY = Key({
    "method": 1, "engine": "SGLang 0.5.23", "device": "cuda", "hardware": "8 x H200", "target": "t" * 64,
    "drafter": "d" * 64, "workload": "w" * 64, "speculation": "2/1/3", "concurrency": 1, "flags": {"tp_size": 8},
})  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class World:
    """A machine and a pair: how much runs and requests of one key differ (log standard deviations)."""

    runs: float = 0.01
    requests: float = 0.03
    prompts: int = 30
    accept: float = 0.5

    def run(self, rng: np.random.Generator, at: int, *, speed: float = 1.0, accept: float = 1.0) -> Run:
        """The run number ``at``; ``speed`` and ``accept`` multiply the truth."""
        hard = np.random.default_rng(7).normal(0, 0.25, size=self.prompts)  # the prompts stay the same
        luck = rng.normal(0, self.runs)
        drift = rng.normal(0, self.runs)  # the baseline's own luck
        rows = []
        for i in range(self.prompts):
            p = min(self.accept * accept * float(np.exp(hard[i] / 4)), 0.95)
            accepted = int(rng.binomial(200, p))
            step_s = 0.012 * float(np.exp(hard[i] / 2 + luck + rng.normal(0, self.requests))) / speed
            plain_s = 0.011 * float(np.exp(hard[i] / 2 + drift + rng.normal(0, self.requests)))
            rows.append(
                Row(
                    id=f"p-{i:02d}",
                    workload=DOMAINS[i % 5],
                    rounds=120,
                    accepted=accepted,
                    tokens=200,
                    decode_s=200 * step_s,
                    baseline_tokens=200,
                    baseline_decode_s=200 * plain_s,
                )
            )
        return Run(
            created=(START + timedelta(days=at)).isoformat(timespec="seconds"),
            tool="0.1.0",
            commit=f"c{at:02d}",
            drafter="aq",
            target="t",
            verdict="profitable",
            gate="pass",
            quiet=True,
            key=KEY,
            values=values(rows),
            rows=tuple(rows),
        )

    def history(self, seed: int, count: int, **options: Any) -> list[Run]:
        """``count`` runs, none of which changed."""
        rng = np.random.default_rng(seed)
        return [self.run(rng, at, **options) for at in range(count)]


def values(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Estimates that nobody looks closely at."""
    speed = sum(r.tokens or 0 for r in rows) / sum(r.decode_s or 0 for r in rows)
    length = 1 + sum(r.accepted or 0 for r in rows) / sum(r.rounds or 0 for r in rows)
    base = sum(r.baseline_tokens or 0 for r in rows) / sum(r.baseline_decode_s or 0 for r in rows)
    found = {"accept_length": length, "tok_per_s": speed, "speedup": speed / base, "baseline_tok_per_s": base}
    return {name: {"value": v, "low": 0.97 * v, "high": 1.03 * v, "n": len(rows)} for name, v in found.items()}


def another_key(run: Run, **parts: Any) -> Run:
    return replace(run, key=Key({**run.key.parts, **parts}))
