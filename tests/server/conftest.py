"""A tiny random Llama pair that real SGLang serves on a CPU, and one booted server that the tests share."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec
from tests.support.held import FAKE, Serve, gone, stand_in, words
from tests.support.server_pair import Pair

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS, DRAFT_VOCAB = 64, 4, 2, 128, 8, 64
SPECULATION = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>")


@pytest.fixture(scope="session", autouse=True)
def _own_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the records of test servers apart from the user's."""
    path = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECPROBE_STATE_DIR", str(path))
        yield path


@pytest.fixture(scope="session")
def needs_sglang() -> None:
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("SGLang is not installed (extra: sglang)")


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    root = tmp_path_factory.mktemp("pair")
    vocab = _tokenizer(root / "target")
    random = np.random.default_rng(7)
    config: dict[str, Any] = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 256,
        "eos_token_id": 257,
    }
    target: dict[str, Any] = {
        "model.embed_tokens.weight": _matrix(random, vocab, HIDDEN, scale=1.0),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": _matrix(random, vocab, HIDDEN, scale=1.0),
    }
    for layer in range(LAYERS):
        target |= _layer(random, f"model.layers.{layer}.", inputs=HIDDEN)
    _save(root / "target", target, config | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS})
    ids = np.sort(random.choice(vocab, DRAFT_VOCAB, replace=False)).astype(np.int64)
    drafter: dict[str, Any] = {
        "fc.weight": _matrix(random, HIDDEN, 3 * HIDDEN),
        "midlayer.hidden_norm.weight": np.ones(HIDDEN, np.float32),
        "norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": _matrix(random, DRAFT_VOCAB, HIDDEN),
        "d2t": ids - np.arange(DRAFT_VOCAB),
        "t2d": np.isin(np.arange(vocab), ids),
        **_layer(random, "midlayer.", inputs=2 * HIDDEN),
    }
    shape = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": DRAFT_VOCAB}
    _save(root / "drafter", drafter, config | shape)
    return Pair(root / "target", root / "drafter")


@pytest.fixture(scope="session")
def tiny_spec(tiny_pair: Pair) -> ServerSpec:
    return ServerSpec(model=str(tiny_pair.target), drafter=tiny_pair.drafter, speculation=SPECULATION, device="cpu")


@pytest.fixture
def fake_python(tmp_path: Path) -> Path:
    """An interpreter that runs the fake server, whatever module it is asked for."""
    path = tmp_path / "fake-python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "python")


@pytest.fixture
def serve(tmp_path: Path, python: Path) -> Iterator[Callable[..., Serve]]:
    """Start ``specprobe serve`` on the stand-in, each in a folder of its own; ends those that still run."""
    started: list[Serve] = []

    def start(*more: str, plan: dict[str, Any] | None = None, **variables: str) -> Serve:
        folder = tmp_path / f"serve{len(started)}"
        folder.mkdir()
        started.append(Serve(folder, words(python, *more), plan=plan or {}, **variables))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
    assert gone(), "a server outlived the test"


@pytest.fixture
def fake_spec(fake_python: Path) -> Callable[..., ServerSpec]:
    """Make the spec of a fake server that behaves as the plan says."""

    def make(**plan: Any) -> ServerSpec:
        return ServerSpec(
            model="m",
            drafter=Path("d"),
            speculation=SPECULATION,
            python=str(fake_python),
            env=(("FAKE_SGLANG", json.dumps(plan)),),
        )

    return make


class Booted(NamedTuple):
    server: OwnedServer
    progress: tuple[BootProgress, ...]


# Of a module: a server that runs on would be in the way of tests that look for leftovers.
@pytest.fixture(scope="module")
def booted(tiny_spec: ServerSpec, tmp_path_factory: pytest.TempPathFactory, needs_sglang: None) -> Iterator[Booted]:
    """Real SGLang with the tiny pair, booted once; one variable that would forge the measurement is in the way."""
    seen: list[BootProgress] = []
    log = tmp_path_factory.mktemp("log") / "server.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_SIMULATE_ACC_LEN", "2.5")
        server = boot(tiny_spec, log_path=log, timeout_s=300, progress=seen.append, label="tiny")
    with server:
        yield Booted(server, tuple(seen))


def _matrix(random: np.random.Generator, rows: int, columns: int, *, scale: float = 0.05) -> Any:
    return (random.standard_normal((rows, columns)) * scale).astype(np.float32)


def _layer(random: np.random.Generator, prefix: str, *, inputs: int) -> dict[str, Any]:
    head = HIDDEN // HEADS
    return {
        f"{prefix}self_attn.q_proj.weight": _matrix(random, HEADS * head, inputs),
        f"{prefix}self_attn.k_proj.weight": _matrix(random, KV_HEADS * head, inputs),
        f"{prefix}self_attn.v_proj.weight": _matrix(random, KV_HEADS * head, inputs),
        f"{prefix}self_attn.o_proj.weight": _matrix(random, HIDDEN, HEADS * head),
        f"{prefix}mlp.gate_proj.weight": _matrix(random, INNER, HIDDEN),
        f"{prefix}mlp.up_proj.weight": _matrix(random, INNER, HIDDEN),
        f"{prefix}mlp.down_proj.weight": _matrix(random, HIDDEN, INNER),
        f"{prefix}input_layernorm.weight": np.ones(HIDDEN, np.float32),
        f"{prefix}post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
    }


def _save(path: Path, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    path.mkdir(exist_ok=True)
    save_file(dict(tensors), path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config))


def _tokenizer(path: Path) -> int:
    """Write a byte-level tokenizer without merges, with a chat template; return its vocabulary's size."""
    path.mkdir()
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = {byte: 256 + n for n, byte in enumerate(b for b in range(256) if b not in printable)}
    vocab = {chr(moved.get(byte, byte)): byte for byte in range(256)}
    added = [
        {"id": 256 + n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for n, word in enumerate(SPECIAL)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab | {w["content"]: w["id"] for w in added}, "merges": []},
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "<s>{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
    template += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": template,
        "model_max_length": 2048,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(described))
    return 256 + len(SPECIAL)
