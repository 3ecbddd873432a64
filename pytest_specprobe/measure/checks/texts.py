"""Are these texts that a drafter can be judged on? Looping, short and one-token ones are not."""

from collections.abc import Iterable, Sequence

from pytest_specprobe.findings import Finding, finding
from pytest_specprobe.measure.checks.loops import looping
from pytest_specprobe.measure.checks.validity import finding_of
from pytest_specprobe.measure.request import Generation

LOOPING_SHARE = 0.25
SHORT_SHARE = 0.25
SHORTEST = 4
"""Tokens of an answer that can be timed: fewer are one round or two, and the first token is prefill's."""
_FEWEST = 2
_ONE_TOKEN = 8


def check_texts(
    generations: Sequence[Generation], *, target: Sequence[Generation] | None = None
) -> tuple[Finding, ...]:
    """Check that few target texts loop, few are too short to time, and none is one repeated token.

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
        check_short(generations),
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


def check_short(texts: Sequence[Generation]) -> Finding:
    """Check that few answers are too short to time, and that two prompts are left to measure."""
    short = [g.prompt_id for g in texts if _short(g)]
    prompts = len({g.prompt_id for g in texts})
    left = prompts - len(dropped_prompts(texts))
    none_left = bool(short) and left < _FEWEST
    shown = ", ".join(short[:3]) + (", ..." if len(short) > 3 else "")
    return finding(
        "measure.short-answers",
        passed=not none_left and len(short) <= SHORT_SHARE * prompts,
        severity="error" if none_left else "warning",
        culprit="workload",
        seen=f"{len(short)} of {prompts} answers are shorter than {SHORTEST} tokens"
        + (f" ({shown}), and {left} prompts are left" if short else ""),
        expected=f"at most {SHORT_SHARE:.0%} short answers, which are left out, and {_FEWEST} prompts left",
        why="A few tokens are one round or two, whose time is that of the first token and of the end.",
        fix="use prompts that ask for longer answers; raise max_new_tokens if it cuts them",
    )


def dropped_prompts(target: Iterable[Generation]) -> dict[str, str]:
    """Return the prompts to leave out of every estimate, with the reason: the target text loops or is too short."""
    texts = list(target)
    short = {g.prompt_id: f"too short to time: {g.completion_tokens} tokens" for g in texts if _short(g)}
    return short | {name: f"target text {what}" for name, what in looping(texts).items()}


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


def _short(g: Generation) -> bool:
    return g.completion_tokens < SHORTEST


def _one_token(g: Generation) -> bool:
    """Tell whether a text is one token over and over, but for its first (prefill's) and its last (the end)."""
    return len(g.output_ids) > _ONE_TOKEN and len(set(g.output_ids[1:-1])) == 1
