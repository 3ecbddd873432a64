"""Did speculation change the text? Greedy speculation may not, except where two tokens nearly tie.

Invariant: reports a rate and every first divergence; equality is asserted only where arithmetic allows it (fp32 on
the CPU engine), never assumed elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_specprobe.measure.records import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two texts of one prompt part: the position in the output, and both tokens (None: that text had ended).

    ``gap`` is the target's top-2 gap in log-probability at that position, None where it was not asked.
    """

    prompt_id: str
    position: int
    drafter_token: int | None
    baseline_token: int | None
    gap: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return one entry of ``losslessness.divergences``."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Losslessness:
    """How many texts were the same with and without speculation, and where the others part."""

    compared: int
    identical: int
    divergences: tuple[Divergence, ...]

    @property
    def rate(self) -> float | None:
        """Return the share of identical texts; None if none was compared."""
        return self.identical / self.compared if self.compared else None

    def unexplained(self, *, near_tie: float = 0.05) -> tuple[Divergence, ...]:
        """Return the divergences that no near-tie explains: the gap is at least ``near_tie``, or was not asked."""
        return tuple(d for d in self.divergences if d.gap is None or d.gap >= near_tie)

    def to_json(self) -> dict[str, Any]:
        """Return the ``losslessness`` object of report.json."""
        return {
            "compared": self.compared,
            "identical": self.identical,
            "rate": self.rate,
            "divergences": [d.to_json() for d in self.divergences],
        }


def compare_texts(
    drafter: Sequence[Generation],
    baseline: Sequence[Generation],
    *,
    gaps: Mapping[tuple[str, int], float] | None = None,
) -> Losslessness:
    """Compare the first text of each prompt that both servers answered.

    Texts cut by different token limits are compared over the shorter one's length.

    :param gaps: top-2 gap by (prompt id, position), where the server was asked for it.
    """
    plain = {g.prompt_id: g for g in reversed(baseline)}
    own = {g.prompt_id: g for g in reversed(drafter)}
    pairs = [(g, plain[i]) for i, g in own.items() if i in plain]
    found = [d for g, other in pairs if (d := _divergence(g, other, gaps or {})) is not None]
    found.sort(key=lambda d: d.prompt_id)
    return Losslessness(compared=len(pairs), identical=len(pairs) - len(found), divergences=tuple(found))


def _divergence(own: Generation, plain: Generation, gaps: Mapping[tuple[str, int], float]) -> Divergence | None:
    a, b = own.output_ids, plain.output_ids
    shared = min(len(a), len(b))
    position = next((i for i in range(shared) if a[i] != b[i]), shared)
    cut = len(a) != len(b) and (own if len(a) == shared else plain).finish_reason == "length"
    if position == shared and (len(a) == len(b) or cut):
        return None
    return Divergence(
        prompt_id=own.prompt_id,
        position=position,
        drafter_token=a[position] if position < len(a) else None,
        baseline_token=b[position] if position < len(b) else None,
        gap=gaps.get((own.prompt_id, position)),
    )
