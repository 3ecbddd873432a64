"""Runs inside SGLang's interpreter: load drafters with the engine's own classes and tell which tensor went where.

Reads cases from stdin and prints one JSON line. Every file tensor is filled with a number of its own and every
parameter with NaN, so that the loaded parameters say which tensors were used and what was left as it was.
"""

import json
import math
import socket
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.distributed import parallel_state
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs
from transformers import AutoConfig, PretrainedConfig

# The engine's CPU path builds no rotary table without one; it takes no part in names or shapes.
YARN = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048}
CLASSES = {
    "LlamaForCausalLMEagle3": "llama_eagle3",
    "Eagle3DeepseekV2ForCausalLM": "kimi_k25_eagle3",
    "LlamaForCausalLM": "llama",
    "DeepseekV3ForCausalLM": "deepseek_v2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "GptOssForCausalLM": "gpt_oss",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
}


def find(name: str) -> Any:
    return getattr(import_module(f"sglang.srt.models.{CLASSES[name]}"), name)


def config_of(values: dict[str, Any]) -> Any:
    try:
        return AutoConfig.for_model(**values)
    except ValueError:
        return PretrainedConfig(**values)


def load(case: dict[str, Any]) -> dict[str, Any]:
    """Build one drafter and load its tensors; shapes that do not fit are reported as ``error``."""
    torch.set_default_dtype(torch.float32)
    name = case["config"]["architectures"][0]
    scaling = {"rope_scaling": dict(YARN)} if name == "Eagle3DeepseekV2ForCausalLM" else {}
    model = find(name)(config_of(case["config"] | scaling))
    for parameter in model.parameters():
        parameter.data.fill_(math.nan)
    names = sorted(case["tensors"])
    weights = []
    for number, name in enumerate(names, start=1):
        integer = name.rpartition(".")[2] in ("d2t", "t2d")
        weights.append(
            (name, torch.full(case["tensors"][name], number, dtype=torch.int64 if integer else torch.float32))
        )
    model.load_weights(weights)
    found: set[int] = set()
    empty = {}
    for name, parameter in model.named_parameters():
        values = parameter.data.flatten()
        found |= {int(v) for v in values[~values.isnan()].unique()}
        missing = int(values.isnan().sum())
        if missing:
            empty[name] = missing
    return {
        "parameters": {name: list(parameter.shape) for name, parameter in model.named_parameters()},
        "used": [names[number - 1] for number in sorted(found)],
        "mapped": model.hot_token_id is not None,
        "empty": empty,
        "borrows_head": model.load_lm_head_from_target,
    }


def capture(case: dict[str, Any]) -> list[int]:
    """Ask a target class which layers it captures for ids (None: its default rule)."""

    def take(layers: list[int]) -> None:
        model.layers_to_capture = layers

    model = SimpleNamespace(set_eagle3_layers_to_capture=take)
    target = SimpleNamespace(
        pp_group=SimpleNamespace(is_last_rank=True),
        config=SimpleNamespace(num_hidden_layers=case["layers"]),
        model=model,
    )
    find(case["target"]).set_eagle3_layers_to_capture(target, case["ids"])
    return list(model.layers_to_capture)


def main() -> None:
    cases = json.load(sys.stdin)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    publish(ServerArgs(model_path="dummy", device="cpu"), role="test", ranks=SpawnRanks(world_rank=0))
    parallel_state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=f"tcp://127.0.0.1:{port}", backend="gloo"
    )
    parallel_state.initialize_model_parallel(backend="gloo")
    results = [capture(case) if "target" in case else load(case) for case in cases]
    sys.stdout.write(f"\nRESULTS {json.dumps(results)}\n")


if __name__ == "__main__":
    main()
