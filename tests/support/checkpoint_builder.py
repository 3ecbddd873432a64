"""Small real checkpoints for the tests: a valid drafter of each class and a target, mutated one fault at a time.

Sizes are tiny but keep every relation of the published drafters: reduced vocabulary, three auxiliary layers, a head
of its own, positions below the target's.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from pytest_specprobe.checkpoint.files.header import read_header
from pytest_specprobe.checkpoint.files.values import read_small

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 4, 2, 16, 96
VOCAB, DRAFT = 640, 192
STOP = 639

Array = npt.NDArray[Any]
RNG = np.random.default_rng(3)


@dataclass
class Checkpoint:
    """A directory in the making: edit ``config`` and ``tensors``, then :meth:`save`.

    With ``bf16`` set, float32 arrays stand for bfloat16 weights, which numpy has no type for. ``partner`` is the
    target that a test puts beside a drafter.
    """

    config: dict[str, Any]
    tensors: dict[str, Array]
    extra: dict[str, bytes] = field(default_factory=dict)
    bf16: bool = False
    partner: "Checkpoint | None" = None

    @property
    def hidden(self) -> int:
        return int(self.config["hidden_size"])

    @property
    def vocab(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def draft(self) -> int:
        return int(self.config["draft_vocab_size"])

    def weights(self, *shape: int) -> Array:
        """Return weights that look trained, in this checkpoint's own float type."""
        made = norm(RNG, *shape) if len(shape) == 1 else trained(RNG, *shape)
        return made.astype(np.float32) if self.bf16 else made

    def save(self, path: Path) -> Path:
        """Write the directory and return it."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config))
        if self.tensors:
            self.write(path / "model.safetensors", self.tensors)
        for name, body in self.extra.items():
            (path / name).write_bytes(body)
        return path

    def write(self, path: Path, tensors: Mapping[str, Array]) -> None:
        """Write one safetensors file."""
        if self.bf16:
            write_bf16(path, tensors)
        else:
            save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)

    def rename(self, change: Callable[[str], str]) -> None:
        """Rename every tensor."""
        self.tensors = {change(name): value for name, value in self.tensors.items()}


def load(path: Path, *, only: Collection[str] = ()) -> Checkpoint:
    """Read a bfloat16 checkpoint of one file back, all tensors or some, to be changed and written elsewhere."""
    tensors = read_header(path / "model.safetensors").tensors
    kept = {name: np.array(read_small(info)) for name, info in tensors.items() if not only or name in only}
    config = json.loads((path / "config.json").read_text())
    beside = ("generation_config.json", "tokenizer_config.json", "tokenizer.json")
    extra = {name: (path / name).read_bytes() for name in beside if (path / name).exists()}
    return Checkpoint(config, kept, extra, bf16=True)


_DTYPES = {"bool": "BOOL", "uint8": "U8", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "BF16"}


def write_bf16(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a safetensors file in which float32 arrays become BF16 (cut, not rounded)."""
    entries, parts, offset = {}, [], 0
    for name, value in tensors.items():
        body = value.tobytes()
        if value.dtype == np.float32:
            body = (np.ascontiguousarray(value).view(np.uint32) >> 16).astype("<u2").tobytes()
        span = [offset, offset + len(body)]
        entries[name] = {"dtype": _DTYPES[value.dtype.name], "shape": value.shape, "data_offsets": span}
        parts.append(body)
        offset = span[1]
    header = json.dumps(entries).encode()
    path.write_bytes(b"".join([len(header).to_bytes(8, "little"), header, *parts]))


def trained(rng: np.random.Generator, *shape: int) -> Array:
    """Return float16 weights with the heavy tails of training, so that they do not look initialised."""
    return (0.02 * rng.standard_t(4, size=shape)).astype(np.float16)


def norm(rng: np.random.Generator, width: int) -> Array:
    """Return a norm's weights, moved away from one."""
    return (1 + 0.1 * rng.standard_normal(width)).astype(np.float16)


def mapping(rng: np.random.Generator, *, draft: int = DRAFT, vocab: int = VOCAB) -> tuple[Array, Array]:
    """Return (d2t, t2d) of a random ascending set that holds the stop id."""
    ids = np.sort(np.append(rng.choice(vocab - 1, size=draft - 1, replace=False), vocab - 1))
    return tables(ids, vocab=vocab)


def tables(ids: Array, *, vocab: int = VOCAB) -> tuple[Array, Array]:
    """Return (d2t, t2d) for given target ids."""
    marks = np.zeros(vocab, dtype=np.bool_)
    marks[ids] = True
    return (ids - np.arange(len(ids))).astype(np.int64), marks


def llama(seed: int = 0) -> Checkpoint:
    """Return a valid LlamaForCausalLMEagle3 drafter in the names of the first exporters."""
    rng = np.random.default_rng(seed)
    d2t, t2d = mapping(rng)
    query, kv, width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, 2 * HIDDEN
    tensors = {
        "d2t": d2t,
        "t2d": t2d,
        "fc.weight": trained(rng, HIDDEN, 3 * HIDDEN),
        "norm.weight": norm(rng, HIDDEN),
        "lm_head.weight": trained(rng, DRAFT, HIDDEN),
        "midlayer.self_attn.q_proj.weight": trained(rng, query, width),
        "midlayer.self_attn.k_proj.weight": trained(rng, kv, width),
        "midlayer.self_attn.v_proj.weight": trained(rng, kv, width),
        "midlayer.self_attn.o_proj.weight": trained(rng, HIDDEN, query),
        "midlayer.mlp.gate_proj.weight": trained(rng, INTERMEDIATE, HIDDEN),
        "midlayer.mlp.up_proj.weight": trained(rng, INTERMEDIATE, HIDDEN),
        "midlayer.mlp.down_proj.weight": trained(rng, HIDDEN, INTERMEDIATE),
        **{f"midlayer.{name}.weight": norm(rng, HIDDEN) for name in _LAYER_NORMS},
    }
    return Checkpoint(llama_config(), tensors)


_LAYER_NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")


def llama_config() -> dict[str, Any]:
    """Return the config of :func:`llama`."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 50000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]},
    }


def mla(seed: int = 0) -> Checkpoint:
    """Return a valid Eagle3DeepseekV2ForCausalLM drafter."""
    rng = np.random.default_rng(seed)
    base = llama(seed)
    q_rank, kv_rank, nope, rope, value = 24, 16, 8, 4, 8
    tensors = {n: t for n, t in base.tensors.items() if "self_attn" not in n}
    prefix, width = "midlayer.self_attn", 2 * HIDDEN
    tensors |= {
        f"{prefix}.q_a_proj.weight": trained(rng, q_rank, width),
        f"{prefix}.q_a_layernorm.weight": norm(rng, q_rank),
        f"{prefix}.q_b_proj.weight": trained(rng, HEADS * (nope + rope), q_rank),
        f"{prefix}.kv_a_proj_with_mqa.weight": trained(rng, kv_rank + rope, width),
        f"{prefix}.kv_a_layernorm.weight": norm(rng, kv_rank),
        f"{prefix}.kv_b_proj.weight": trained(rng, HEADS * (nope + value), kv_rank),
        f"{prefix}.o_proj.weight": trained(rng, HIDDEN, HEADS * value),
    }
    config = llama_config() | {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
    }
    del config["head_dim"]
    return Checkpoint(config, tensors)


def target(*, layers: int = 8) -> Checkpoint:
    """Return a target that :func:`llama` and :func:`mla` fit: config, embedding, head, tokenizer facts."""
    rng = np.random.default_rng(7)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": layers,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "rope_theta": 50000.0,
        "torch_dtype": "float16",
        "eos_token_id": STOP,
    }
    tensors = {
        "model.embed_tokens.weight": trained(rng, VOCAB, HIDDEN),
        "lm_head.weight": trained(rng, VOCAB, HIDDEN),
        "model.norm.weight": norm(rng, HIDDEN),
    }
    return Checkpoint(config, tensors)
