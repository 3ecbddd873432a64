"""Baselines of earlier runs: the speed of a target without speculation, so that it need not boot twice every time.

Invariant: a stored baseline is used only for the same target, engine, torch, driver, flags, environment, machine,
token limit and prompts (as template and tokenizer make them), always with its age, and never as if it had been
measured beside the drafter: its interval is widened by what two boots usually differ by.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import JsonValue

from pytest_specprobe.foreign import one_line, printable
from pytest_specprobe.measure.boot_spread import BOOT_SPREAD
from pytest_specprobe.measure.request import Estimate
from pytest_specprobe.measure.throughput import KnownBaseline, Throughput
from pytest_specprobe.report.store import journal
from pytest_specprobe.report.store.key import METHOD, Key, prompts_part
from pytest_specprobe.server.child_environment import environment
from pytest_specprobe.server.spec import ServerSpec, command
from pytest_specprobe.server.variables import speed_variables

SCHEMA = 1
NAME = "baselines.jsonl"
_SHOWN = 60  # characters of a part that differs
_ELSEWHERE = frozenset({"--model-path", "--host", "--port"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """One measured baseline: tok/s of one stream, and (prompt id, tokens, decode seconds) for every prompt.

    ``first_token_s`` is the median time to the first token of the drafter's server beside it: a witness of how
    fast the machine was.
    """

    created: str
    key: Key
    tok_per_s: Estimate
    first_token_s: float
    rows: tuple[tuple[str, int, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return one line of ``baselines.jsonl``."""
        return {
            "schema": SCHEMA,
            "created": self.created,
            "key": dict(self.key.parts),
            "tok_per_s": asdict(self.tok_per_s),
            "first_token_s": self.first_token_s,
            "rows": [list(row) for row in self.rows],
        }

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Self:
        """Return the baseline of one line.

        :raises ValueError: if it is not one.
        """
        try:
            rows = tuple((str(i), int(tokens), float(s)) for i, tokens, s in line["rows"])
            told, first = line["tok_per_s"], float(line["first_token_s"])
            rate = Estimate(float(told["value"]), float(told["low"]), float(told["high"]), int(told["n"]))
            if not 0 < rate.low <= rate.value <= rate.high < math.inf or not 0 < first < math.inf:
                raise ValueError("a rate must be positive and inside its interval")
            created = datetime.fromisoformat(line["created"]).astimezone(UTC).isoformat(timespec="seconds")
            return cls(created=created, key=Key(dict(line["key"])), tok_per_s=rate, first_token_s=first, rows=rows)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a baseline: {error!r}") from error

    def known(self, *, now: datetime) -> KnownBaseline:
        """Return it as the throughput pass takes it: widened by two boots' spread, with its age."""
        rate, boots = self.tok_per_s, 1.96 * BOOT_SPREAD * math.sqrt(2)
        below = math.hypot(math.log(rate.value / rate.low), boots)
        above = math.hypot(math.log(rate.high / rate.value), boots)
        age = now - datetime.fromisoformat(self.created)
        return KnownBaseline(
            tok_per_s=Estimate(rate.value, rate.value * math.exp(-below), rate.value * math.exp(above), rate.n),
            source="stored",
            age_s=max(age.total_seconds(), 0.0),
            first_token_s=self.first_token_s,
        )


def baseline_key(
    spec: ServerSpec,
    *,
    target: str,
    engine: str,
    hardware: str,
    host: str,
    driver: str | None,
    torch: str,
    workload: str,
    max_new_tokens: int,
    concurrency: int,
    rendering: str,
    environ: Mapping[str, str],
    thinking: bool | None = None,
) -> Key:
    """Return what a baseline must share to be used again; known before any boot.

    :param spec: the baseline's server; its flags count, not where it listens or lies.
    :param target: the target's digest; ``workload`` the prompts'.
    :param engine: SGLang's version; ``torch`` that of the PyTorch beside it.
    :param hardware: the GPUs, or the CPU; ``host`` the CPU and its cores in either case, which launch each step.
    :param driver: version of the GPU driver; None where there is none. It counts on GPUs alone.
    :param rendering: digest of what turns the prompts into token ids (``checkpoint.digest.text_digest``).
    :param environ: this process's environment, which a boot hands on; what changes the server's speed counts.
    :param max_new_tokens: the limit that the answers' lengths come from.
    :param thinking: what the chat template was told; None: nothing.
    :raises ValueError: for a server that speculates.
    """
    if spec.drafter is not None:
        raise ValueError("a baseline does not speculate")
    return Key({
        "method": METHOD,
        "engine": f"SGLang {engine}",
        "device": spec.device,
        "torch": torch,
        "hardware": hardware,
        "host": host,
        "driver": driver if spec.device == "cuda" else None,
        "target": target,
        "workload": prompts_part(workload, thinking=thinking),
        "max_new_tokens": max_new_tokens,
        "concurrency": concurrency,
        "command": [*_flags(command(spec, host="", port=0))],
        "rendering": rendering,
        "env": {**speed_variables(environment(spec, environ)[0]), **dict(spec.env)},
    })  # fmt: skip


def measured(throughput: Throughput, *, key: Key, now: datetime) -> StoredBaseline | None:
    """Return the baseline of a throughput pass that had a server of its own for it; else None."""
    if throughput.baseline_tok_per_s is None or throughput.baseline_source not in ("boot", "alternating"):
        return None
    rows = tuple(
        (row.id, row.baseline_tokens, round(row.baseline_decode_s, 6))
        for row in throughput.prompts
        if row.baseline_tokens is not None and row.baseline_decode_s is not None
    )
    created = now.astimezone(UTC).isoformat(timespec="seconds")
    return StoredBaseline(
        created=created,
        key=key,
        tok_per_s=throughput.baseline_tok_per_s,
        first_token_s=throughput.latency.first_token_s.p50,
        rows=rows,
    )


def store(baseline: StoredBaseline, *, path: Path) -> None:
    """Append a baseline.

    :raises OSError: if the file cannot be written.
    """
    journal.append(path, baseline.to_json())


def find(key: Key, *, path: Path) -> StoredBaseline | None:
    """Return the newest baseline of this key; None if there is none. Lines that are no baseline are passed over.

    :raises Unreadable: if the file is there and cannot be read.
    """
    same = [baseline for baseline in _stored(path) if baseline.key == key]
    return max(same, key=_age_order, default=None)


def mismatch(key: Key, *, path: Path) -> str | None:
    """Return in what the nearest stored baseline of this target is of another question; None without one.

    The nearest differs in the fewest parts. A part that it was written without reads "not recorded".

    :raises Unreadable: if the file is there and cannot be read.
    """
    others = [b for b in _stored(path) if b.key != key and b.key.parts.get("target") == key.parts.get("target")]
    if not others:
        return None
    nearest = min(sorted(others, key=_age_order, reverse=True), key=lambda b: len(b.key.differences(key)))
    parts = (
        f"{one_line(name, limit=_SHOWN)} ({_was(name, nearest.key, was)}; now {_shown(now)})"
        for name, (was, now) in nearest.key.differences(key).items()
    )
    return printable(f"the one of {nearest.created} differs in {', '.join(parts)}")


def _stored(path: Path) -> list[StoredBaseline]:
    baselines = []
    for line in journal.read(path, schema=SCHEMA).lines:
        try:
            baselines.append(StoredBaseline.parse(line))
        except ValueError:
            continue
    return baselines


def _age_order(baseline: StoredBaseline) -> str:
    return baseline.created


def _was(name: str, key: Key, part: JsonValue) -> str:
    return _shown(part) if name.partition(".")[0] in key.parts else "not recorded"


def _shown(part: JsonValue) -> str:
    """Return a part as one short line; a file of others is shown, never obeyed."""
    return one_line("none" if part is None else part if isinstance(part, str) else json.dumps(part), limit=_SHOWN)


def _flags(words: Sequence[str]) -> list[str]:
    flags = list(words[words.index("sglang.launch_server") + 1 :])
    dropped = {at + step for at, word in enumerate(flags) if word in _ELSEWHERE for step in (0, 1)}
    return [word for at, word in enumerate(flags) if at not in dropped]
