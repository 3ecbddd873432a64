"""The step-pinning plug-in: what it refuses, what it leaves alone, and how a child finds it."""

import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_specprobe.engines.steps import OVERLAY, PIN_KEY, adaptive_config, environment

MODULE = OVERLAY / "specprobe_step_pin.py"


def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("specprobe_step_pin", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Controller:
    candidate_steps = (1, 2, 3)

    def __init__(self) -> None:
        self.active = 2

    def _activate(self, steps: int) -> None:
        assert type(steps) is int
        self.active = steps


def scheduler(*, idle: bool = True, adaptive: bool = True) -> Any:
    worker = SimpleNamespace(adaptive_controller=Controller() if adaptive else None)
    return SimpleNamespace(draft_worker=worker, is_fully_idle=lambda: idle)


def test_a_pin_is_in_force_at_once_and_for_every_batch() -> None:
    pin, server = plugin().Pin(), scheduler()
    assert pin.choose(lambda *_: 2, None, 8) == 2
    assert pin.learn(lambda *_: 3, None, [1], 8) == 3
    assert pin.take(server, {PIN_KEY: 3.0}) == ""
    assert server.draft_worker.adaptive_controller.active == 3
    assert pin.choose(lambda *_: 2, None, 8) == 3
    assert pin.learn(lambda *_: 1, None, [1], 8) is None


@pytest.mark.parametrize(
    ("server", "wanted", "says"),
    [
        (scheduler(), {PIN_KEY: 4}, "4 is none of the prebuilt step counts"),
        (scheduler(), {PIN_KEY: 2.5}, "2.5 is none"),
        (scheduler(), {PIN_KEY: 0}, "0 is none"),
        (scheduler(), {PIN_KEY: -1}, "-1 is none"),
        (scheduler(), {PIN_KEY: 3, "pp_max_micro_batch_size": 1}, "comes alone"),
        (scheduler(idle=False), {PIN_KEY: 3}, "requests are running"),
        (scheduler(adaptive=False), {PIN_KEY: 3}, "does not run --speculative-adaptive"),
        (SimpleNamespace(draft_worker=None, is_fully_idle=lambda: True), {PIN_KEY: 3}, "does not run"),
    ],
)
def test_what_cannot_be_pinned_is_refused_and_changes_nothing(
    server: Any, wanted: dict[str, float], says: str
) -> None:
    pin = plugin().Pin()
    assert says in pin.take(server, wanted)
    assert pin.steps is None
    controller = getattr(server.draft_worker, "adaptive_controller", None)
    assert controller is None or controller.active == 2


def test_other_keys_stay_sglangs_own() -> None:
    request = SimpleNamespace(server_args={"pp_max_micro_batch_size": 4})
    assert plugin().Pin().set_internal_state(lambda *args: args, "scheduler", request) == ("scheduler", request)


def modules(tree: dict[str, Any]) -> dict[str, types.ModuleType]:
    made = {}
    for name, names in tree.items():
        module = types.ModuleType(name)
        vars(module).update(names)
        module.__path__ = []
        made[name] = module
    return made


def standing_in(
    monkeypatch: pytest.MonkeyPatch, *, gone: str = "", width: Callable[..., int] | None = None
) -> list[tuple[str, str]]:
    """Put a stand-in for an SGLang in place, which may lack one name; return where its hooks will be listed."""

    def kind(*names: str) -> type:
        return type("K", (), {name: lambda *_: None for name in names if name != gone})

    hooks: list[tuple[str, str]] = []
    tree: dict[str, Any] = {
        "sglang": {}, "sglang.srt": {}, "sglang.srt.managers": {}, "sglang.srt.speculative": {},
        "sglang.srt.plugins": {},
        "sglang.srt.managers.scheduler": {"Scheduler": kind("set_internal_state", "is_fully_idle")},
        "sglang.srt.speculative.adaptive_spec_params": {
            "AdaptiveSpeculativeParams": kind("get_steps_for_batch", "on_verify_complete")
        },
        "sglang.srt.speculative.adaptive_runtime_state": {"AdaptiveController": kind("candidate_steps", "_activate")},
        "sglang.srt.plugins.hook_registry": {
            "HookRegistry": SimpleNamespace(register=lambda target, _, kind: hooks.append((target, kind))),
            "HookType": SimpleNamespace(AROUND="around"),
        },
        "sglang.srt.runtime_context": {"get_spec": lambda: SimpleNamespace(speculative_num_draft_tokens=4)},
    }  # fmt: skip
    if width is not None:
        tree["sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner"] = {"resolve_num_tokens_per_req": width}
    for name, module in modules(tree).items():
        monkeypatch.setitem(sys.modules, name, module)
    return hooks


@pytest.mark.parametrize("gone", ["", "get_steps_for_batch", "set_internal_state", "_activate"])
def test_hooks_are_registered_all_or_none(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real SGLang is asked in proofs/test_sweep.py."""
    hooks = standing_in(monkeypatch, gone=gone)
    plugin().activate()
    assert {kind for _, kind in hooks} == (set() if gone else {"around"})
    assert len(hooks) == (0 if gone else 3)


def width_of_0517(*, phase: str, server_args: object, is_draft_worker: bool = False) -> int:
    """As SGLang 0.5.17 has it: the boot's width, whatever state is captured."""
    return {"draft_extend": 6, "draft_decode": 1}[phase]


def width_of_0523(*, phase: str, is_draft_worker: bool = False) -> int:
    """As SGLang 0.5.23 has it: from the state that is captured."""
    return 4


@pytest.mark.parametrize(("width", "hooked"), [(width_of_0517, True), (width_of_0523, False), (None, False)])
def test_the_width_of_draft_extend_graphs_is_mended_where_it_is_wrong(
    width: Callable[..., int] | None, hooked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = standing_in(monkeypatch, width=width)
    plugin().activate()
    assert any(target.endswith("resolve_num_tokens_per_req") for target, _ in hooks) is hooked
    assert len(hooks) == 3 + hooked


def test_a_draft_extend_graph_is_as_wide_as_the_state_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, width=width_of_0517)
    around = plugin().draft_extend_width
    assert around(width_of_0517, phase="draft_extend", server_args=None) == 4
    assert around(width_of_0517, phase="draft_decode", server_args=None) == 1


FIND = "import importlib.metadata as m; print([p.name for p in m.entry_points(group='sglang.srt.plugins')])"


def test_only_a_child_on_the_overlay_finds_the_plug_in() -> None:
    def found(**env: str) -> str:
        child = subprocess.run(
            [sys.executable, "-c", FIND], env=os.environ | env, capture_output=True, text=True, check=True
        )
        return child.stdout

    assert "specprobe_step_pin" in found(**environment({}))
    assert "specprobe_step_pin" not in found(PYTHONPATH="")
    assert environment({"PYTHONPATH": "/cpu:/a"})["PYTHONPATH"] == f"{OVERLAY}:/cpu:/a"


def test_one_slot_holds_all_candidates_for_every_batch_size() -> None:
    config = json.loads(adaptive_config([5, 1, 3, 1]))
    assert list(config) == ["1"]
    assert config["1"]["candidate_steps"] == [1, 3, 5]
    assert config["1"]["warmup_batches"] > 10**8
