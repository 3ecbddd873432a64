"""A sweep's boots: chains share one, others have their own, and what cannot run is said instead of fatal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_specprobe.errors import BootError, CheckFailed, MeasurementError
from pytest_specprobe.measure.passes import ThroughputRuns
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.probe.passes.sweep import SweepPlan, SweepRun
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.servers.baselines import Baseline
from pytest_specprobe.profiles import Speculation
from tests.support.requests import plain_of, request_of

ONE, TWO, THREE = (Speculation(num_steps=k, eagle_topk=1, num_draft_tokens=k + 1) for k in (1, 2, 3))
TREE = Speculation(num_steps=2, eagle_topk=2, num_draft_tokens=4)
PROMPTS = [Prompt(id=f"p{i}", workload="w", text="t", input_ids=(1,)) for i in range(8)]
TOKENS = 24


class Box:
    """A machine of stand-in servers: what was asked of which, and which of them fail how."""

    def __init__(
        self, *, fails: dict[str, str] | None = None, owned: bool = True, base: bool = True, crowded: bool = False
    ) -> None:
        self.crowded = crowded
        self.round_s = {"own": 0.02}  # of each server; the others take as long as the shared boot
        self.fails = fails or {}
        self.calls: list[str] = []
        self.said: list[str] = []
        self.up = 2 if base else 1
        self.most_up = self.up
        self.own = self.made("own", 2, owned=owned)
        self.base = self.made("base", 0) if base else None
        self.device = "cuda"

    def made(self, name: str, steps: int, *, owned: bool = True) -> Any:
        state = SimpleNamespace(steps=steps)

        def generate(
            prompt: Prompt, *, max_new_tokens: int, ignore_eos: bool, temperature: float = 0.0
        ) -> Generation:
            self.calls.append(f"{name}:{state.steps}")
            if self.fails.get(name) == "request":
                raise MeasurementError("request p0 failed", culprit="engine", fix="")
            if name == "base":
                return plain_of(prompt.id, TOKENS, token_s=0.012 + 0.001 * (len(self.calls) % 3))
            accepted = [state.steps, 0] * 6
            round_s = self.round_s.get(name, 0.02) * (1 + 4 * (name == "shared" and state.steps == 3))
            return request_of(
                prompt.id, accepted, depth=state.steps, round_s=round_s + 0.0002 * (len(self.calls) % 3)
            )

        def pin(_: str, steps: int) -> bool:
            self.calls.append(f"{name}={steps}")
            if self.fails.get(name) == "refuses":
                return False
            state.steps = steps
            return True

        def info() -> Any:
            seen = 2 if self.fails.get(name) == "drifts" and len(self.calls) > 12 else state.steps
            rank = {"speculative_num_steps": seen, "speculative_num_draft_tokens": seen + 1}
            return SimpleNamespace(internal=(rank,))

        client = SimpleNamespace(
            url=f"http://{name}", generate=generate, flush=lambda: None, set_internal_state=pin, server_info=info
        )
        return SimpleNamespace(client=client, pid=None, owned=owned)

    # --- what SweepRun asks of ProbeServers ----------------------------------------------------------------------

    def server(self) -> Any:
        return self.own

    def baseline(self) -> Baseline:
        return Baseline(self.base, None, apart=self.crowded and self.base is None)

    def prompts(self) -> list[Prompt]:
        return PROMPTS

    @contextmanager
    def room(self) -> Iterator[bool]:
        self.up -= self.crowded
        yield not self.crowded
        self.up += self.crowded

    @contextmanager
    def arm(self, setting: Speculation, *, candidates: tuple[int, ...] = ()) -> Iterator[Any]:
        name = "shared" if candidates else str(setting)
        # one for fewer steps dies on a GPU, capturing graphs for more
        assert not candidates or setting.num_steps == max(candidates)
        self.calls.append(f"boot {name}" + (f" {candidates}" if candidates else ""))
        match self.fails.get(name):
            case "boot":
                raise BootError("out of memory\nmore", culprit="machine", fix="")
            case "proof":
                raise CheckFailed("proof.adaptive: saw off", culprit="engine", fix="")
        self.up += 1
        self.most_up = max(self.up, self.most_up)
        try:
            yield self.made(name, setting.num_steps)
        finally:
            self.up -= 1


def sweep(box: Box, *settings: Speculation, own: Speculation = TWO, plain: bool = False, streams: int = 1) -> Any:
    generate: Callable[..., Generation] = box.own.client.generate
    runs = ThroughputRuns(
        drafter=tuple(generate(p, max_new_tokens=TOKENS, ignore_eos=True) for p in PROMPTS),
        baseline=tuple(plain_of(p.id, TOKENS) for p in PROMPTS) if box.base or plain else (),
        drafter_wall_s=1.0,
        baseline_wall_s=1.0,
    )
    box.calls.clear()
    plan = SweepPlan(
        own=own,
        settings=tuple(dict.fromkeys((own, *settings))),
        runs=runs,
        lengths={p.id: TOKENS for p in PROMPTS},
        dropped={},
        streams=streams,
    )
    found = SweepRun(plan, box, PhaseLog("d", say=box.said.append)).run()  # type: ignore[arg-type]
    assert box.up == (2 if box.base else 1), "a server was left running"
    assert box.most_up <= 3
    return found


def ways(found: Any) -> dict[str, str]:
    return {str(arm.setting): arm.how for arm in found.arms}


def test_all_chains_share_one_boot_and_a_tree_has_its_own() -> None:
    box = Box()
    found = sweep(box, ONE, THREE, TREE)
    assert ways(found) == {"2/1/3": "one-boot", "1/1/2": "one-boot", "3/1/4": "one-boot", "2/2/4": "own-boot"}
    assert [c for c in box.calls if c.startswith("boot")] == ["boot shared (2, 1, 3)", "boot 2/2/4"]
    assert not any(arm.apart for arm in found.arms)
    assert found.fallback is None
    assert found.parity.setting == TWO
    assert (found.parity.identical, found.parity.compared) == (8, 8)
    for arm in found.arms:
        assert arm.acceptance.accept_length.value == pytest.approx(1 + arm.setting.depth / 2)


def test_every_turn_is_pinned_to_its_own_setting() -> None:
    box = Box()
    sweep(box, ONE, THREE)
    turns = [c for c in box.calls if c.startswith("shared")]
    pinned, asked = turns[0::2], turns[1::2]
    assert [c.replace("=", ":") for c in pinned] == asked
    assert {asked.count(f"shared:{k}") for k in (1, 2, 3)} == {9}  # one warm-up, eight prompts


def test_one_chain_besides_the_own_one_gets_a_boot_of_its_own() -> None:
    box = Box()
    found = sweep(box, THREE)
    assert ways(found) == {"2/1/3": "own-boot", "3/1/4": "own-boot"}
    assert found.parity is None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("boot", "out of memory"),
        ("proof", "proof.adaptive"),
        ("refuses", "refuses to be pinned to"),
        ("drifts", "says it drafts 2 steps"),
    ],
)
def test_chains_that_cannot_share_a_boot_get_one_each_and_it_is_said(fault: str, says: str) -> None:
    box = Box(fails={"shared": fault})
    found = sweep(box, ONE, THREE)
    assert ways(found) == {"2/1/3": "own-boot", "1/1/2": "own-boot", "3/1/4": "own-boot"}
    assert says in found.fallback
    assert found.parity is None
    assert any(says in line and "one boot per setting" in line for line in box.said)


def test_a_setting_that_does_not_boot_is_skipped_with_its_reason() -> None:
    box = Box(fails={"2/2/4": "boot"})
    found = sweep(box, THREE, TREE)
    assert found.skipped == {TREE: "not run: out of memory"}
    assert set(ways(found)) == {"2/1/3", "3/1/4"}


def test_if_nothing_else_could_run_the_own_setting_is_the_probes_own_pass() -> None:
    found = sweep(Box(fails={"2/2/4": "boot"}), TREE)
    assert ways(found) == {"2/1/3": "own-boot"}
    assert found.best.setting == TWO
    assert not found.surely_better


def test_a_request_that_fails_is_no_reason_to_boot_again() -> None:
    with pytest.raises(MeasurementError, match="request p0 failed"):
        sweep(Box(fails={"shared": "request"}), ONE, THREE)


def test_an_attached_server_is_never_booted_again() -> None:
    box = Box(owned=False, base=False)
    found = sweep(box, ONE, THREE, TREE)
    assert ways(found) == {"2/1/3": "attached"}
    assert set(found.skipped) == {ONE, THREE, TREE}
    assert not [c for c in box.calls if c.startswith("boot")]


def test_without_a_baseline_server_two_servers_are_up() -> None:
    box = Box(base=False)
    found = sweep(box, ONE, THREE)
    assert box.most_up == 2
    assert all(arm.throughput.speedup is None for arm in found.arms)
    assert all((arm.over_own is None) == (arm.setting == TWO) for arm in found.arms)


def test_a_tree_of_the_profile_is_measured_beside_the_shared_chains() -> None:
    found = sweep(Box(), ONE, THREE, own=TREE)
    assert ways(found) == {"2/2/4": "own-boot", "1/1/2": "one-boot", "3/1/4": "one-boot"}
    assert found.parity is None


def test_where_servers_do_not_fit_together_chains_still_share_one_boot() -> None:
    """Large targets: the drafter's server makes room, and the baseline's requests are of the probe's own pass."""
    box = Box(base=False, crowded=True)
    found = sweep(box, ONE, THREE, plain=True)
    assert box.most_up == 1
    assert ways(found) == {"2/1/3": "one-boot", "1/1/2": "one-boot", "3/1/4": "one-boot"}
    assert all(arm.apart for arm in found.arms)
    assert found.parity.shown
    assert found.parity.compared == 8
    assert not [c for c in box.calls if c.startswith("own")]
    assert {arm.throughput.baseline_source for arm in found.arms} == {"alternating"}


def test_a_lone_setting_that_does_not_fit_is_held_against_the_probes_own_pass() -> None:
    box = Box(crowded=True)
    found = sweep(box, TREE)
    assert box.most_up == 2
    assert {str(arm.setting): arm.apart for arm in found.arms} == {"2/2/4": True, "2/1/3": False}


def test_several_streams_run_every_prompt_in_each_turn_and_the_order_turns_over() -> None:
    box = Box()
    found = sweep(box, ONE, THREE, streams=4)
    pins = [c for c in box.calls if c.startswith("shared=")]
    assert pins == [f"shared={k}" for k in (2, 1, 3, 2, 1, 3, 3, 1, 2)]  # warm-up, A B C, C B A
    assert {arm.throughput.concurrency for arm in found.arms} == {4}
    assert all(len(arm.requests) == 2 * len(PROMPTS) for arm in found.arms)
    assert found.parity.compared == 2 * len(PROMPTS)


def test_the_own_settings_times_are_of_its_own_boot_where_the_shared_one_is_slower() -> None:
    box = Box()
    box.round_s |= {"shared": 0.03}
    found = sweep(box, ONE, THREE)
    assert ways(found) == {"2/1/3": "own-boot", "1/1/2": "one-boot", "3/1/4": "one-boot"}
    assert found.best.setting == TWO
    assert [str(arm.setting) for arm in found.arms if found.comparable(arm)] == ["2/1/3"]


@pytest.mark.parametrize(("shared_s", "skipped"), [(0.0201, True), (0.030, False)])
def test_a_shared_boot_rules_a_tree_out_only_once_it_is_shown_to_be_as_fast(shared_s: float, skipped: bool) -> None:
    """Rounds of 3/1/4 are so long there that a tree as deep could not win; if the boot itself is slow, who knows."""
    box = Box()
    box.round_s |= {"shared": shared_s}
    tree = Speculation(num_steps=3, eagle_topk=2, num_draft_tokens=8)
    found = sweep(box, ONE, THREE, tree)
    assert found.parity.shown == skipped
    assert (tree in found.skipped) == skipped
    assert ("boot 3/2/8" in box.calls) != skipped
