"""Stock SGLang on the CPU engine computes what EAGLE-3 is, round by round, and changes no token.

(a) the baseline's greedy output is transformers'; (b) EAGLE-3's is the baseline's; (c) an independent simulation,
given the server's own output, accepts as many drafts in every round that does not hang on a near-tie.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.engine.agreement import compare
from tests.support.engine.oracle import Oracle
from tests.support.engine.pairs import SUBJECTS, Pair
from tests.support.engine.record import CHUNK, TOKENS, Run
from tests.support.engine.serving import Answer
from tests.support.engine.simulation import Drafter, default_aux_layers

TIE = 1e-4
"""Logits nearer than this are a coin toss between two fp32 programs, so a text may part there."""

SPECULATING = ["chain2", "chain4", "tree"]
PASSES = [
    ("chain2", "one"),
    ("chain2", "many"),
    ("chain4", "one"),
    ("chain4", "many"),
    ("chain4", "natural"),
    ("tree", "many"),
    ("tree", "again"),
]
Runs = Callable[[str], Run]


def parted(answers: list[Answer], oracle: Oracle) -> list[tuple[int, int, float]]:
    """Return (answer, token, margin) wherever an answer leaves what transformers would have said."""
    found = []
    for number, answer in enumerate(answers):
        divergence = oracle.read(answer.prompt, answer.output).first_divergence()
        if divergence is not None:
            found.append((number, *divergence))
    return found


@pytest.mark.parametrize("name", ["many", "natural"])
def test_baseline_is_transformers_token_for_token(baseline: Run, oracle: Oracle, name: str) -> None:
    answers = baseline.passes[name]
    assert len(answers) == len(SUBJECTS) >= 20
    found = parted(answers, oracle)
    assert [f for f in found if f[2] > TIE] == []
    assert len(found) <= 1


def test_baseline_runs_to_length_or_to_its_own_end(baseline: Run) -> None:
    assert all(len(answer.output) == TOKENS for answer in baseline.passes["many"])
    natural = baseline.passes["natural"]
    assert sum(answer.stopped for answer in natural) >= len(natural) // 4
    assert all(answer.stopped or len(answer.output) == TOKENS for answer in natural)


@pytest.mark.parametrize(("server", "name"), PASSES)
def test_speculation_changes_no_token(runs: Runs, baseline: Run, oracle: Oracle, server: str, name: str) -> None:
    answers = runs(server).passes[name]
    expected = baseline.passes["natural" if name == "natural" else "many"]
    expected = expected[::2] if name == "one" else expected
    differ = [a for a, b in zip(answers, expected, strict=True) if a.output != b.output]
    assert [f for f in parted(differ, oracle) if f[2] > TIE] == []
    assert len(differ) <= 1


@pytest.mark.parametrize(("server", "name"), PASSES)
def test_every_round_accepts_what_the_simulation_accepts(
    runs: Runs, oracle: Oracle, drafter: Drafter, server: str, name: str
) -> None:
    run = runs(server)
    tally = compare(run.passes[name], oracle=oracle, drafter=drafter, shape=run.shape)
    assert tally.wrong == [], str(tally)
    assert tally.close_share <= 0.02, str(tally)


@pytest.mark.parametrize("server", SPECULATING)
def test_rounds_of_every_size_were_seen(runs: Runs, server: str) -> None:
    run = runs(server)
    seen = {size for a in run.passes["many"] for size, count in enumerate(a.histogram) if count}
    assert seen == set(range(run.shape.depth + 1))


@pytest.mark.parametrize(
    "mutate",
    [
        pytest.param(lambda d: replace(d, position_shift=1), id="drafted-rows-one-position-late"),
        pytest.param(lambda d: replace(d, position_shift=-1), id="drafted-rows-one-position-early"),
        pytest.param(lambda d: _other_layers(d, 1), id="aux-layers-one-up"),
        pytest.param(lambda d: _other_layers(d, -1), id="aux-layers-one-down"),
        pytest.param(lambda d: replace(d, target_ids=d.target_ids.roll(1)), id="mapping-one-off"),
        pytest.param(lambda d: replace(d, target_ids=d.target_ids + 1), id="ids-one-off"),
    ],
)
def test_a_planted_fault_breaks_the_agreement(
    runs: Runs, pair: Pair, oracle: Oracle, drafter: Drafter, mutate: Callable[[Drafter], Drafter]
) -> None:
    run = runs("chain4" if pair.name == "dense" else "chain2")
    tally = compare(run.passes["one"], oracle=oracle, drafter=mutate(drafter), shape=run.shape)
    assert tally.wrong, str(tally)


def _other_layers(drafter: Drafter, shift: int) -> Drafter:
    layers = drafter.aux_layers or default_aux_layers(8)
    return replace(drafter, aux_layers=tuple(layer + shift for layer in layers))


def test_without_a_cache_nothing_was_cached(chain2: Run) -> None:
    assert all(answer.cached_tokens == 0 for name in chain2.passes for answer in chain2.passes[name])


def test_the_cache_was_cold_then_warm_and_prefill_was_chunked(runs: Runs, pair: Pair) -> None:
    run, before, after = (runs("chain4"), "one", "many") if pair.name == "dense" else (runs("tree"), "many", "again")
    first = run.passes[before]
    again = run.passes[after] if len(run.passes[after]) == len(first) else run.passes[after][::2]
    assert sum(a.cached_tokens for a in first) < sum(a.cached_tokens for a in again)
    assert all(answer.cached_tokens > len(answer.prompt) // 2 for answer in again)
    assert sum(len(answer.prompt) > CHUNK for answer in first) >= 6
    sizes = [int(line.split("#new-token: ")[1].split(",")[0]) for line in run.log.splitlines() if "#new-tok" in line]
    assert max(sizes) == CHUNK


@pytest.mark.parametrize("server", ["baseline", *SPECULATING])
def test_no_server_reached_for_an_operation_that_is_not_there(runs: Runs, server: str) -> None:
    log = runs(server).log
    assert "is not provided by the specprobe CPU engine" not in log
    assert "Traceback" not in log


def test_the_tree_servers_took_their_host_for_another(tree: Run) -> None:
    # The launcher, the scheduler and the detokenizer each say so; what they computed is judged above.
    assert tree.log.count("pretending to ") >= 3
