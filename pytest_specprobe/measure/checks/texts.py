"""Are these texts that a drafter can be judged on? Looping ones, and such of one repeated token, are not."""

from collections.abc import Iterable, Sequence

from pytest_specprobe.findings import Finding
from pytest_specprobe.measure.checks.loops import looping
from pytest_specprobe.measure.checks.validity import finding_of
from pytest_specprobe.measure.request import Generation

LOOPING_SHARE = 0.25
_ONE_TOKEN = 8


def check_texts(
    generations: Sequence[Generation], *, target: Sequence[Generation] | None = None
) -> tuple[Finding, ...]:
    """Check that few target texts loop, and none is one repeated token.

    :param generations: the drafter's requests.
    :param target: the same prompts without speculation, if there are any; else the drafter's texts stand for them.
    """
    own = [g for g in generations if _one_token(g)]
    # A single text may be like that; a quarter of them is the engine, whichever of the two servers wrote them.
    many = len(own) > LOOPING_SHARE * len(generations)
    plain = {g.prompt_id for g in target or () if _one_token(g)}
    stuck = own if many else [g for g in own if g.prompt_id not in plain]
    names = {g.prompt_id for g in stuck}
    return (
        _looping_share([g for g in (generations if target is None else target) if g.prompt_id not in names]),
        finding_of(
            "measure.one-token",
            stuck,
            generations,
            culprit="engine",
            severity="error" if target is not None or many else "warning",
            expected="texts of more than one distinct token, unless the target alone writes a few of them too",
            why="NaN logits make every position the same token, and every draft accepted or none.",
            fix="look for NaN in the server's log; try another attention backend or dtype",
        ),
    )


def dropped_prompts(target: Iterable[Generation]) -> dict[str, str]:
    """Return the prompts to leave out of every estimate, with the reason: their target text loops."""
    return {name: f"target text {what}" for name, what in looping(target).items()}


def _looping_share(texts: Sequence[Generation]) -> Finding:
    loops = looping(texts)
    prompts = len({g.prompt_id for g in texts})
    shown = [f"{name} {what}" for name, what in list(loops.items())[:3]]
    return Finding(
        id="measure.looping",
        severity="error",
        status="fail" if len(loops) > LOOPING_SHARE * prompts else "pass",
        culprit="workload",
        seen=f"{len(loops)} of {prompts} target texts loop" + (f" ({'; '.join(shown)})" if shown else ""),
        expected=f"at most {LOOPING_SHARE:.0%} looping texts; those that do are left out",
        why="Repetition is easy to draft: the same pair read 7.76 on a looping text and 2.68 on the next run.",
        fix="use prompts that suit the target, its chat template, and fewer new tokens",
    )


def _one_token(g: Generation) -> bool:
    """Tell whether a text is one token over and over, but for its first (prefill's) and its last (the end)."""
    return len(g.output_ids) > _ONE_TOKEN and len(set(g.output_ids[1:-1])) == 1
