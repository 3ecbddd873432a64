"""The tables of expected tensors against the installed SGLang: its own classes load the same files.

For every case the engine's class is built from the config, every parameter is set to NaN, and the tensors are loaded
by the engine's own loader. What is then still NaN must be what our account calls missing, and the tensors whose
values are found in no parameter must be the ones it calls unused.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.checkpoint.engine.accounting import Account, account_for
from pytest_specprobe.checkpoint.engine.architectures import Slot
from pytest_specprobe.checkpoint.engine.capture import captured_layers, default_layers
from pytest_specprobe.checkpoint.engine.shape import shape_of
from pytest_specprobe.checkpoint.files.header import TensorInfo
from pytest_specprobe.engines.cpu.launch import environment
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_builder import HIDDEN, VOCAB

pytestmark = pytest.mark.skipif(find_spec("sglang") is None, reason="needs the extra [sglang]")

Shapes = dict[str, tuple[int, ...]]
Case = tuple[dict[str, Any], Shapes]
CHILD = Path(__file__).with_name("engine_child.py")


def case(base: Callable[[], build.Checkpoint], **config: Any) -> Case:
    made = base()
    return made.config | config, {name: value.shape for name, value in made.tensors.items()}


def renamed(base: Case, old: str, new: str) -> Case:
    return base[0], {name.replace(old, new): shape for name, shape in base[1].items()}


def added(base: Case, shapes: Shapes) -> Case:
    return base[0], base[1] | shapes


def without(base: Case, *names: str) -> Case:
    return base[0], {name: shape for name, shape in base[1].items() if name not in names}


LLAMA, MLA = case(build.llama), case(build.mla)
NORMS: Shapes = {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(3)}
LEGACY: Shapes = {f"aux_norm_{i}.weight": (HIDDEN,) for i in ("low", "mid", "high")}
INPUT: Shapes = {"input_norm.weight": (3 * HIDDEN,)}
BIASES: Shapes = {
    "fc.bias": (HIDDEN,),
    "midlayer.self_attn.o_proj.bias": (HIDDEN,),
    "midlayer.self_attn.q_proj.bias": (HIDDEN,),
    "midlayer.mlp.down_proj.bias": (HIDDEN,),
}


def _two_layers() -> Case:
    config, shapes = renamed(LLAMA, "midlayer.", "layers.0.")
    second = {
        name.replace("layers.0.", "layers.1."): (shape[0], HIDDEN)
        if len(shape) == 2 and shape[1] == 2 * HIDDEN
        else shape
        for name, shape in shapes.items()
        if name.startswith("layers.0.")
    }
    return config | {"num_hidden_layers": 2}, shapes | second


def _fused(base: Case, fused: str, parts: tuple[str, ...]) -> Case:
    config, shapes = base
    rows = sum(shapes[part][0] for part in parts)
    kept = {name: shape for name, shape in shapes.items() if name not in parts}
    return config, kept | {fused: (rows, shapes[parts[0]][1])}


_ATTENTION = "midlayer.self_attn"
GATE_UP = tuple(f"midlayer.mlp.{part}_proj.weight" for part in ("gate", "up"))
QKV = tuple(f"{_ATTENTION}.{part}_proj.weight" for part in "qkv")
A_HALVES = tuple(f"{_ATTENTION}.{part}.weight" for part in ("q_a_proj", "kv_a_proj_with_mqa"))
FOUR_IDS = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]}


def refit(base: Case, blocks: int) -> Case:
    """Give fc another number of blocks."""
    return added(without(base, "fc.weight"), {"fc.weight": (HIDDEN, blocks * HIDDEN)})


CASES: dict[str, Case] = {
    "llama": LLAMA,
    "mla": MLA,
    **{
        f"{name}-{new}": renamed(base, "midlayer.", new)
        for (name, base), new in product(
            (("llama", LLAMA), ("mla", MLA)),
            ("layers.0.", "model.layers.0.", "model.midlayer.", "module.midlayer.", "layers.1."),
        )
    },
    **{
        f"{name}-{new}{old}": renamed(base, old, f"{new}{old}")
        for (name, base), new, old in product(
            (("llama", LLAMA), ("mla", MLA)), ("model.", "drafter."), ("fc.", "lm_head.", "d2t")
        )
    },
    **{
        f"{name}-without-{tensor}": without(base, tensor)
        for name, base in (("llama", LLAMA), ("mla", MLA))
        for tensor in base[1]
    },
    "llama-two-layers": _two_layers(),
    "llama-two-layers-bare": without(_two_layers(), "layers.1.input_layernorm.weight"),
    "llama-qkv": _fused(LLAMA, f"{_ATTENTION}.qkv_proj.weight", QKV),
    "llama-gate-up": _fused(LLAMA, "midlayer.mlp.gate_up_proj.weight", GATE_UP),
    "mla-gate-up": _fused(MLA, "midlayer.mlp.gate_up_proj.weight", GATE_UP),
    "mla-fused-a": _fused(MLA, f"{_ATTENTION}.fused_qkv_a_proj_with_mqa.weight", A_HALVES),
    **{
        f"{name}-biases-{flags}": added(case(base, **flags), BIASES)
        for (name, base), flags in product(
            (("llama", build.llama), ("mla", build.mla)), ({}, {"bias": True}, {"attention_bias": True})
        )
        if not (name == "mla" and flags == {})
    },
    **{
        f"{name}-norms-{flags}-{len(norms)}": added(case(base, **flags), norms)
        for (name, base), flags, norms in product(
            (("llama", build.llama), ("mla", build.mla)),
            ({}, {"fc_norm": True}, {"use_aux_norm": True}),
            (NORMS, LEGACY),
        )
    },
    "llama-input-norm": added(case(build.llama, norm_before_fc=True), INPUT),
    "llama-input-norm-nested": added(case(build.llama, eagle_config={"norm_before_fc": True}), INPUT),
    "llama-input-norm-off": added(LLAMA, INPUT),
    "mla-input-norm": added(case(build.mla, norm_before_fc=True), INPUT),
    "llama-borrowed": without(case(build.llama, draft_vocab_size=None), "lm_head.weight", "d2t", "t2d"),
    "mla-borrowed": without(case(build.mla, draft_vocab_size=None), "lm_head.weight", "d2t", "t2d"),
    "llama-tied": case(build.llama, tie_word_embeddings=True),
    "llama-own-width": added(
        without(case(build.llama, target_hidden_size=96), "fc.weight"),
        {"fc.weight": (HIDDEN, 288), "embed_tokens.weight": (VOCAB, HIDDEN)},
    ),
    "llama-embedding": added(LLAMA, {"embed_tokens.weight": (VOCAB, HIDDEN)}),
    "llama-four-ids": refit(case(build.llama, eagle_config=FOUR_IDS), 4),
    "llama-num-aux": refit(case(build.llama, num_aux_hidden_states=2), 2),
    "llama-ids-outside": case(build.llama, eagle_config=None, **FOUR_IDS),
    "mla-ids-outside": refit(case(build.mla, eagle_config=None, **FOUR_IDS), 4),
    "llama-rotary": added(LLAMA, {"midlayer.self_attn.rotary_emb.inv_freq": (8,)}),
}
# The MLA loader fuses two halves once it has both; with one of them it loads neither, so the account, which names the
# half that is missing, counts the other one as used.
HALVES = {f"mla-without-{_ATTENTION}.{half}.weight": half for half in ("q_a_proj", "kv_a_proj_with_mqa")}
TARGETS = ("LlamaForCausalLM", "DeepseekV3ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
           "GptOssForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM")  # fmt: skip
IDS: tuple[list[int] | None, ...] = (None, [1, 29, 57], [2, 30, 58], [0, 5, 61], [24, 30, 36])
CAPTURES = [(target, ids) for target in TARGETS for ids in IDS]


@pytest.fixture(scope="module")
def engine() -> list[Any]:
    """What the installed SGLang does with every case, then with every capture: one child process for all."""
    loads = [{"config": config, "tensors": shapes} for config, shapes in CASES.values()]
    captures = [{"target": target, "ids": ids, "layers": 61} for target, ids in CAPTURES]
    ran = subprocess.run(
        [sys.executable, str(CHILD)],
        input=json.dumps([*loads, *captures]),
        env=os.environ | environment(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    results: list[Any] = json.loads(ran.stdout.rpartition("RESULTS ")[2])
    return results


@pytest.mark.parametrize("name", [name for name in CASES if name not in HALVES])
def test_the_account_is_what_the_engine_does(engine: list[Any], name: str) -> None:
    config, shapes = CASES[name]
    told = engine[list(CASES).index(name)]
    found = _account(config, shapes)
    shape = found.shape

    assert {n: list(p.shape) for n, p in found.built.items()} == told["parameters"]
    tables = {Slot("d2t"), Slot("t2d")}
    assert sorted(t.name for slot, t in found.filled.items() if slot not in tables) == sorted(told["used"])
    assert (Slot("d2t") in found.filled) == told["mapped"]
    assert {n: gap for n in found.built if (gap := _gap(n, found))} == told["empty"]
    assert (shape.draft_vocab is None and not shape.tied) == told["borrows_head"]


@pytest.mark.parametrize("name", HALVES)
def test_half_of_a_fused_pair_is_a_gap_to_both(engine: list[Any], name: str) -> None:
    config, shapes = CASES[name]
    told = engine[list(CASES).index(name)]
    fused = f"model.{_ATTENTION}.fused_qkv_a_proj_with_mqa.weight"
    assert fused in told["empty"]
    assert _account(config, shapes).missing() == (f"{fused} ({HALVES[name]})",)


def _account(config: dict[str, Any], shapes: Shapes) -> Account:
    shape = shape_of(config)
    assert shape is not None
    return account_for(shape, {n: TensorInfo(n, "F32", s, 0, 4 * prod(s), Path()) for n, s in shapes.items()})


def _gap(name: str, found: Account) -> int:
    """Elements of a parameter that no tensor fills."""
    parameter = found.built[name]
    if Slot(name) in found.filled:
        return 0
    if not parameter.parts:
        return prod(parameter.shape)
    return sum(prod(shape) for part, shape in parameter.parts.items() if Slot(name, part) not in found.filled)


@pytest.mark.parametrize(("target", "ids"), CAPTURES, ids=str)
def test_the_captured_layers_are_the_engines(engine: list[Any], target: str, ids: list[int] | None) -> None:
    told = engine[len(CASES) + CAPTURES.index((target, ids))]
    ours = default_layers(61) if ids is None else captured_layers(ids, architecture=target, layers=61)
    assert ours == told
