"""Throughput passes of a probe: what takes turns with what, and which baseline a pass may be held against."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_specprobe.errors import BootError
from pytest_specprobe.measure.request import Estimate, Generation, Prompt
from pytest_specprobe.measure.throughput import KnownBaseline
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.probe.passes.throughput import Timing
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.servers.alternating import AlternatingServer, Alternation
from pytest_specprobe.probe.servers.baselines import Baseline
from pytest_specprobe.probe.servers.probe_servers import ProbeServers
from tests.support.requests import plain_of, request_of

PROMPTS = tuple(Prompt(id=f"p{i}", workload="ab"[i % 2], text="", input_ids=(1,) * 10) for i in range(8))
STORED = KnownBaseline(tok_per_s=Estimate(100.0, 95.0, 105.0, 30), source="stored", age_s=60.0, first_token_s=0.2)


class Server:
    """Answers with made-up times; counts what it prefilled, somebody else's requests too."""

    owned, vouched, pid = True, True, None

    def __init__(self, turns: list[str], *, speculates: bool, device: str = "cuda", foreign: int = 0) -> None:
        self.client = self
        self._turns = turns
        self._speculates = speculates
        self.device = device
        self._foreign = foreign
        self._prefilled = 0

    def flush(self) -> None:
        self._prefilled += self._foreign

    def suspend(self) -> None:
        self._turns.append("ends")

    def prefilled_tokens(self) -> int:
        return self._prefilled

    def generate(self, prompt: Prompt, *, max_new_tokens: int, **_: Any) -> Generation:
        self._turns.append("drafter" if self._speculates else "baseline")
        self._prefilled += len(prompt.input_ids)
        if self._speculates:
            return request_of(prompt.id, [0, 1, 1, 0, 2, 0] * 3, depth=2, workload=prompt.workload, round_s=0.015)
        return plain_of(prompt.id, max_new_tokens, workload=prompt.workload, token_s=0.01)


def timing(
    drafter: Server,
    baseline: Baseline,
    *,
    watch: TrafficWatch | None = None,
    alternation: Callable[[TrafficWatch], Alternation] | None = None,
) -> Timing:
    servers = SimpleNamespace(
        baseline=lambda: baseline,
        server=lambda: drafter,
        prompts=lambda: PROMPTS,
        prove_again=lambda: None,
        alternation=alternation,
    )
    return Timing(
        cast("ProbeServers", servers), phases=PhaseLog("x", say=lambda _: None), watch=watch or TrafficWatch()
    )


def texts() -> list[Generation]:
    return [Server([], speculates=True).generate(prompt, max_new_tokens=99) for prompt in PROMPTS]


@pytest.mark.parametrize(("streams", "first_turns"), [(1, 1), (4, 8)])
def test_a_drift_meets_both_servers_alike_at_any_load(streams: int, first_turns: int) -> None:
    """A B, B A: of one stream prompt by prompt, of more in whole rounds."""
    turns: list[str] = []
    own, base = Server(turns, speculates=True), Server(turns, speculates=False)
    runs, _ = timing(own, Baseline(cast("Any", base), None)).measure(texts(), streams=streams)
    measured = turns[2 * max(streams, 1) :]
    one = ["drafter"] * first_turns + ["baseline"] * first_turns
    assert measured[: 4 * first_turns] == one + one[::-1]
    assert len(runs.drafter) == len(runs.baseline) == len(PROMPTS) * (1 if streams == 1 else 2)


def test_a_known_baseline_is_of_the_load_it_was_measured_at_and_of_no_other() -> None:
    found = timing(Server([], speculates=True), Baseline(None, STORED))
    assert found.measure(texts(), streams=1)[1].speedup is not None
    level = found.measure(texts(), streams=4, deciding=False)[1]
    assert (level.speedup, level.baseline_tok_per_s, level.baseline_source) == (None, None, None)


def test_a_baseline_that_does_not_boot_leaves_the_drafter_s_server_up() -> None:
    boots: list[str] = []
    own = Server([], speculates=True)

    def drafter(server: Any) -> Any:
        boots.append("drafter again")
        return server

    def baseline(_: Any) -> Any:
        boots.append("baseline")
        raise BootError("out of memory", culprit="machine", fix="make room")

    def alternation(watch: TrafficWatch) -> Alternation:
        return Alternation(
            AlternatingServer("drafter", drafter, cast("Any", own), up=True),
            AlternatingServer("baseline", baseline),
            watch,
        )

    found = timing(own, Baseline(None, None, apart=True), alternation=alternation)
    with pytest.raises(BootError, match="out of memory"):
        found.measure(texts(), streams=1)
    assert boots == ["baseline", "drafter again"]


@pytest.mark.parametrize("foreign", [0, 1000])
def test_servers_in_turn_are_watched_too(foreign: int) -> None:
    turns: list[str] = []
    watch = TrafficWatch()
    own = Server(turns, speculates=True, device="cpu", foreign=foreign)
    base = Server(turns, speculates=False, device="cpu", foreign=foreign)

    def alternation(watch: TrafficWatch) -> Alternation:
        up = AlternatingServer("drafter", lambda server: server or cast("Any", own), cast("Any", own), up=True)
        return Alternation(up, AlternatingServer("baseline", lambda server: server or cast("Any", base)), watch)

    found = timing(own, Baseline(None, None, apart=True), watch=watch, alternation=alternation)
    found.measure(texts(), streams=1)
    assert [p.what for p in watch.passes] == ["drafter", "baseline", "drafter"]
    assert [bool(p.foreign) for p in watch.passes] == [bool(foreign)] * 3
    assert [check.id.partition("-")[0] for check in found.load] in (
        ["measure.boots", "measure.busy"],
        ["measure.boots", "measure.crowded"],
    )
