"""Did speculation change the text? Greedy speculation may not, except by the rounding of the engine's arithmetic.

Invariant: equality is never assumed and no divergence is excused unasked: where two texts part, the target itself is
asked, over their common prefix, whether both tokens were its two best and how far apart. In float32 that decides. In
16 bits and below no gap tells rounding from a fault (it depends on the size of the logits, and a flipped expert moves
them by whole units), so both texts are read whole, and the plain server's are the control (``odd_tokens``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from pytest_specprobe.findings import Finding, Severity
from pytest_specprobe.measure.checks.greedy import expected_of, severity_of
from pytest_specprobe.measure.checks.odd_tokens import (
    NEAR_TIE,
    NEAR_TIE_EXACT,
    Excess,
    PairedReadings,
    measure_excess,
)
from pytest_specprobe.measure.request import Generation, Prompt

# Of texts that nobody read whole: healthy 16-bit pairs with flipped experts were seen at 0.19.
_UNEXPLAINED_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Best:
    """The target's two best next tokens, the best first, and the gap of their log-probabilities (natural log)."""

    tokens: tuple[int, int]
    gap: float


@dataclass(frozen=True, slots=True)
class Question:
    """A place to ask the target about: the tokens before it, of prompt and output."""

    prompt_id: str
    position: int
    input_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Where two texts of one prompt part: the position in the output, and both tokens (None: that text had ended).

    ``best`` is what the target says there, None where it was not asked.
    """

    prompt_id: str
    position: int
    drafter_token: int | None
    baseline_token: int | None
    best: Best | None = None

    def explained(self, near_tie: float) -> bool:
        """Tell whether both tokens are the target's two best, less than ``near_tie`` apart."""
        if self.best is None or self.best.gap >= near_tie:
            return False
        return {self.drafter_token, self.baseline_token} == set(self.best.tokens)


@dataclass(frozen=True, slots=True)
class Losslessness:
    """How many texts were the same with and without speculation, and where the others part.

    ``exact`` says that the arithmetic is float32, so that only rounding of its last digits may swap two tokens.
    ``odd_tokens`` compares what the target would not have said in the texts of both; None where they were not read.
    """

    compared: int
    divergences: tuple[Divergence, ...]
    _: KW_ONLY
    exact: bool = False
    odd_tokens: Excess | None = None

    @property
    def identical(self) -> int:
        """Return how many texts were the same."""
        return self.compared - len(self.divergences)

    @property
    def rate(self) -> float | None:
        """Return the share of identical texts; None if none was compared."""
        return self.identical / self.compared if self.compared else None

    @property
    def near_tie(self) -> float:
        """Return the gap below which two tokens may swap."""
        return NEAR_TIE_EXACT if self.exact else NEAR_TIE

    @property
    def unexplained(self) -> tuple[Divergence, ...]:
        """Return the divergences that are no near-tie, or were not asked about."""
        return tuple(d for d in self.divergences if not d.explained(self.near_tie))


def compare_texts(
    drafter: Sequence[Generation],
    baseline: Sequence[Generation],
    *,
    best: Mapping[str, Best] | None = None,
    exact: bool = False,
    readings: PairedReadings | None = None,
) -> Losslessness:
    """Compare the first text of each prompt that both servers answered.

    Texts cut by different token limits are compared over the shorter one's length.

    :param best: the answers to ``questions``, by prompt id.
    :param readings: texts of both, read by the target; None where they were not read.
    """
    plain = {g.prompt_id: g for g in reversed(baseline)}
    own = {g.prompt_id: g for g in reversed(drafter)}
    pairs = [(g, plain[i]) for i, g in own.items() if i in plain]
    found = [d for g, other in pairs if (d := _divergence(g, other, best or {})) is not None]
    found.sort(key=lambda d: d.prompt_id)
    near_tie = NEAR_TIE_EXACT if exact else NEAR_TIE
    odd = None if readings is None else measure_excess(readings.drafter, readings.baseline, near_tie=near_tie)
    return Losslessness(len(pairs), tuple(found), exact=exact, odd_tokens=odd)


def questions(
    drafter: Sequence[Generation], baseline: Sequence[Generation], prompts: Sequence[Prompt]
) -> tuple[Question, ...]:
    """Return what to ask the target: one place per prompt whose texts part."""
    given = {p.id: p.input_ids for p in prompts}
    texts = {g.prompt_id: g.output_ids for g in reversed(drafter)}
    return tuple(
        Question(d.prompt_id, d.position, (*given[d.prompt_id], *texts[d.prompt_id][: d.position]))
        for d in compare_texts(drafter, baseline).divergences
    )


def check_texts_equal(found: Losslessness) -> Finding:
    """Check that speculation changed no text by more than the engine's own arithmetic does.

    In float32 one unexplained divergence is an error. In 16 bits the plain server's own texts are the control; where
    they were not read, unexplained divergences are a warning, and of a third of the texts an error.
    """
    odd = found.unexplained
    severity: Severity | None = None
    expected = f"equal greedy texts, or a gap below {found.near_tie:g} between the target's two best tokens"
    seen = _seen(found)
    if not found.exact and found.odd_tokens is not None:
        severity = severity_of(found.odd_tokens, found.odd_tokens.drafter.rate)
        expected = f"tokens that the target would not have said: {expected_of(found.odd_tokens)}"
        seen += f"; {found.odd_tokens}"
    elif odd:
        known = [d for d in odd if d.best is not None]
        severity = "error" if found.exact or len(known) > _UNEXPLAINED_SHARE * found.compared else "warning"
    return Finding(
        id="measure.text-changed",
        severity=severity or ("error" if found.exact else "warning"),
        status="fail" if severity else "pass",
        culprit="engine",
        seen=seen,
        expected=expected,
        why="Greedy speculation may only change which of two nearly equal tokens wins; anything else is another "
        "model, simulated acceptance, or an engine that accepts what the target would not say.",
        fix="compare the flags of both servers; look for SGLANG_SIMULATE_ACC_* where the server was started",
    )


def _seen(found: Losslessness) -> str:
    odd = found.unexplained
    seen = f"{found.identical} of {found.compared} texts are the same"
    if found.divergences:
        seen += f", {len(found.divergences) - len(odd)} part at a near-tie"
    if odd:
        first = odd[0]
        gap = "not asked" if first.best is None else f"{first.best.gap:.3g} between {first.best.tokens}"
        seen += (
            f", {len(odd)} elsewhere ({first.prompt_id} at token {first.position}: {first.drafter_token} for "
            f"{first.baseline_token}; the target's gap: {gap})"
        )
    return seen


def _divergence(own: Generation, plain: Generation, best: Mapping[str, Best]) -> Divergence | None:
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
        best=best.get(own.prompt_id),
    )
