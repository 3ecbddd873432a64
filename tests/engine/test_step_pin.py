"""The step-pinning plug-in: what it refuses, what it leaves alone, and how a child finds it."""

import importlib.util
import json
import os
import subprocess
import sys
import types
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


@pytest.mark.parametrize("gone", ["", "get_steps_for_batch", "set_internal_state", "_activate"])
def test_hooks_are_registered_all_or_none(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for an SGLang that lacks one name; the real one is asked in proofs/test_sweep.py."""

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
    }  # fmt: skip
    for name, module in modules(tree).items():
        monkeypatch.setitem(sys.modules, name, module)
    plugin().activate()
    assert {kind for _, kind in hooks} == (set() if gone else {"around"})
    assert len(hooks) == (0 if gone else 3)


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
