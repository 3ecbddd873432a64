"""Made-up turns of a comparison with SGLang's own benchmark client."""

from collections.abc import Sequence
from typing import Any

from benchmarks.beside_sglang import Comparison, Turn
from tests.support.requests import request_of

_DECODE = "[2026-11-30 00:51:3{}] Decode batch, #running-req: 1, #token: 160, token usage: 0.01, accept len: {}, "
_REST = "accept rate: 0.14, cpu graph: False, gen throughput (token/s): {}, #queue-req: 0"
_PREFILL = "[2026-11-30 00:51:35] Prefill batch, #new-seq: 1, #new-token: 42, input throughput (token/s): 4.13"


def _line(second: int, length: float, speed: float) -> str:
    return _DECODE.format(second, f"{length:.2f}") + _REST.format(f"{speed:.2f}")


LOG = "\n".join((
    _line(0, 1.4, 90), _line(1, 1.5, 120), _line(2, 2.0, 130),  # the first interval began before the text
    _PREFILL, _line(4, 1.6, 20), _line(5, 1.2, 100), _PREFILL,
))  # fmt: skip


def turn(**changes: Any) -> Turn:
    made: dict[str, Any] = {
        "tokens": 100, "decode_s": 1.0, "texts": (), "own_mean": None, "log_lines": (), "printed": {}, "requests": (),
    }  # fmt: skip
    return Turn(**(made | changes))


def figures(*, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """The figures of a comparison whose turns had these rates."""
    request = request_of("p", [0, 1], depth=2)
    return Comparison(
        version="0.5.23",
        workload="mini",
        prompts=1,
        new_tokens=4,
        ours=tuple(turn(decode_s=100 / r, texts=(request.text,), requests=(request,)) for r in ours),
        theirs=tuple(
            turn(decode_s=100 / r, texts=(request.text,), own_mean=1.48, printed={"output_throughput": r})
            for r in theirs
        ),
    ).to_json()
