"""``specprobe breakeven``: what accept length pays, from four numbers that anyone can look up."""

import argparse
import json
import math

from pytest_specprobe.cli.parser import Verbs
from pytest_specprobe.errors import ProfileError


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "breakeven",
        help="what accept length pays, from a speed with and without speculation",
        description="What accept length pays: the break-even point of one target, draft depth and machine, from the "
        "speed of one stream with and without speculation. Exit 0, or 2 for unusable arguments.",
    )
    verb.add_argument("--baseline", type=_positive, required=True, metavar="TOK/S", help="speed without speculation")
    verb.add_argument("--tok-s", type=_positive, required=True, metavar="TOK/S", help="speed with speculation")
    verb.add_argument(
        "--accept-length", type=_positive, required=True, metavar="L", help="tokens per round, bonus token counted"
    )
    verb.add_argument("--steps", type=_count, required=True, metavar="N", help="--speculative-num-steps")
    verb.add_argument(
        "--draft-tokens", type=_count, metavar="N", help="--speculative-num-draft-tokens (default: steps + 1)"
    )
    verb.add_argument(
        "--p-reach", type=_positive, default=0.80, metavar="P",
        help="acceptance per position that training is believed to reach (default: 0.80)",
    )  # fmt: skip
    verb.add_argument(
        "--min-headroom", type=_positive, default=1.10, metavar="H",
        help="L(p-reach) / break-even that makes training worth it (default: 1.10)",
    )  # fmt: skip
    verb.add_argument("--json", action="store_true", help="print JSON: the break_even object of report.json")
    verb.set_defaults(run=_breakeven)


def _breakeven(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.decide.breakeven import break_even, chain_length, reading
    from pytest_specprobe.report.build import break_even_of

    length, steps = arguments.accept_length, arguments.steps
    depth = min(steps, (arguments.draft_tokens or steps + 1) - 1)
    problems = []
    if depth < 1:
        problems.append("--draft-tokens counts the root too, so it must be at least 2")
    elif not 1 <= length <= depth + 1:
        problems.append(f"--accept-length {length:g} is outside 1 .. {depth + 1}, what {depth} drafts can give")
    if not arguments.p_reach < 1:
        problems.append("--p-reach must be below 1")
    if problems:
        raise ProfileError(tuple(problems), fix="see specprobe breakeven --help")
    point = break_even(
        round_s=length / arguments.tok_s,
        baseline_tok_per_s=arguments.baseline,
        depth=depth,
        p_reach=arguments.p_reach,
    )
    if arguments.json:
        print(json.dumps(break_even_of(point).document(), indent=2))
        return 0
    verdict = reading(point, length, min_headroom=arguments.min_headroom)
    required = point.required_acceptance
    print(f"round time       {1000 * point.round_s:.1f} ms  (accept length / tok/s)")
    print(f"break-even       {point.accept_length:.2f} of {depth + 1:.1f} tokens per round; now {length:.2f}")
    print(f"speedup          {arguments.tok_s / arguments.baseline:.2f}")
    print(
        f"required p*      {'out of reach' if required is None else f'{required:.2f} acceptance at every position'}"
    )
    print(
        f"headroom         {point.headroom:.2f} at {point.p_reach:.2f} acceptance "
        f"(accept length {chain_length(point.p_reach, depth=depth):.2f}); wanted {arguments.min_headroom:.2f}"
    )
    print(f"ceiling speedup  {point.ceiling_speedup:.2f} if every draft were accepted")
    print(f"reading          {verdict}: {_MEANS[verdict]} (bare numbers; a probe gives intervals)")
    if arguments.tok_s / arguments.baseline > 1.05 * length:
        print("doubt            a speedup above the accept length: the baseline is not of the same server and load")
    return 0


_MEANS = {
    "profitable": "it pays as it is",
    "verify-bound": "no drafter of this depth pays well at this round time; the verify step is the wall",
    "finetune": "a better drafter of this depth can pay",
}


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 512:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 512")
    return number
