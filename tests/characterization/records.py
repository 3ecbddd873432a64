"""The kept records, and the raw rows of requests that their rows per prompt came from.

A record holds sums per prompt and no texts. What depends on texts (floor, margin, coverage) is recomputed over
made-up ones, so it is another number than the record's; all else must be the record's own.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.characterization.world import Row, chance

HERE = Path(__file__).parent
RECORDS = HERE.parents[1] / "docs" / "records"
DATA = HERE / "data"


@cache
def _texts() -> dict[str, str]:
    kept = {path.parent.name: path.read_text(encoding="utf-8") for path in sorted(RECORDS.glob("*/report.json"))}
    old = {
        path.name.partition(".")[0]: gzip.decompress(path.read_bytes()).decode() for path in sorted(DATA.glob("*.gz"))
    }
    return kept | {f"data-{name}": text for name, text in old.items()}


def reports() -> dict[str, dict[str, Any]]:
    """Every kept report by name, each time a copy of its own."""
    return {name: json.loads(text) for name, text in _texts().items()}


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every drafter of every report, and the runs of the record of repeats."""
    for name, report in reports().items():
        yield from ((f"{name}/{entry['name']}", entry) for entry in report["drafters"])
    repeats = json.loads((RECORDS / "mini-cpu-repeats" / "repeats.json").read_text(encoding="utf-8"))
    yield from ((f"repeat-{at}", entry) for at, entry in enumerate(repeats["repeats"]))
    yield "many", repeats["many"]


def histories() -> dict[str, list[dict[str, Any]]]:
    """The lines of every kept history."""
    return {
        path.parent.name: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(RECORDS.glob("*/history.jsonl"))
    }


def depth_of(entry: Mapping[str, Any]) -> int:
    return int(entry["acceptance"]["max_accept_length"]) - 1


def acceptance_rows(entry: Mapping[str, Any]) -> list[Row]:
    """One request per prompt of the acceptance pass."""
    return [_request(row, row["histogram"], row["rounds"], row["accepted"]) for row in entry["acceptance"]["prompts"]]


def blind_rows(entry: Mapping[str, Any]) -> list[Row] | None:
    """The same of the blind control; None without one. A hit accepts one draft, as far as is known."""
    prompts = entry["acceptance"]["prompts"]
    if any(row["blind_rounds"] is None for row in prompts):
        return None
    tail = [0] * (depth_of(entry) - 1)
    return [
        _request(
            row,
            [row["blind_rounds"] - row["blind_hits"], row["blind_hits"], *tail],
            row["blind_rounds"],
            row["blind_hits"],
        )
        for row in prompts
    ]


def speed_rows(entry: Mapping[str, Any]) -> tuple[list[Row], list[Row] | None]:
    """One request per prompt of the throughput pass, with and without speculation."""
    prompts = entry["throughput"]["prompts"]
    own = [
        _timed(
            row,
            row["tokens"],
            row["decode_s"],
            rounds=row["rounds"],
            accepted=row["accepted"],
            total_s=row["total_s"],
        )
        for row in prompts
    ]
    if any(row["baseline_decode_s"] is None for row in prompts):
        return own, None
    return own, [_timed(row, row["baseline_tokens"], row["baseline_decode_s"]) for row in prompts]


def _request(row: Mapping[str, Any], histogram: list[int], rounds: int, accepted: int) -> Row:
    tokens = row["completion_tokens"]
    draws = chance("record", row["id"])
    return {
        "prompt_id": row["id"],
        "workload": row["workload"],
        "prompt_tokens": row["prompt_tokens"],
        "cached_tokens": 0,
        "completion_tokens": tokens,
        "output_ids": tuple(int(900 ** draws.random()) for _ in range(tokens)),
        "text": "",
        "finish_reason": row["finish_reason"],
        "rounds": rounds,
        "accepted": accepted,
        "histogram": tuple(histogram),
        "sglang_accept_length": None,
        "start_s": 0.0,
        "first_s": 0.5,
        "last_s": 1.5,
        "first_tokens": 1,
        "chunk_tokens": (1, tokens - 1),
        "chunk_s": (0.5, 1.5),
    }


def _timed(
    row: Mapping[str, Any],
    tokens: int,
    seconds: float,
    *,
    rounds: float | None = None,
    accepted: int | None = None,
    total_s: float | None = None,
) -> Row:
    first = (seconds if total_s is None else total_s) - seconds
    return {
        "prompt_id": row["id"],
        "workload": row["workload"],
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "completion_tokens": tokens + 1,
        "output_ids": (1, 2),
        "text": "",
        "finish_reason": "length",
        "rounds": rounds,
        "accepted": accepted,
        "histogram": None,
        "sglang_accept_length": None,
        "start_s": 0.0,
        "first_s": first,
        "last_s": first + seconds,
        "first_tokens": 1,
        "chunk_tokens": (1, tokens),
        "chunk_s": (first, first + seconds),
    }
