"""Config shapes of published drafters and public training templates, by their facts: no false alarm on any.

Facts (sizes, ids, flags) are those of the SpecForge templates and of published drafters. The
weights are headers only: inspect reads nothing else of a well-formed file but the mapping, which is real here.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.checkpoint.engine.shape import LLAMA, shape_of
from pytest_specprobe.checkpoint.inspect import inspect
from tests.support import checkpoint_builder as build
from tests.support.published_drafters import PUBLISHED, Published, file_names, llama, make, write_sparse


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda p: p.name)
def test_a_published_drafter_raises_no_false_alarm(published: Published, tmp_path: Path) -> None:
    drafter, target = make(published, tmp_path)
    findings = inspect(drafter, target=target)
    expected = published.notes | (set() if published.witness else {"vocab.t2d-missing"})
    assert {f.id: f.line() for f in findings if f.status == "fail" and f.id not in expected} == {}
    alone = inspect(drafter)
    assert not [f.id for f in (*findings, *alone) if f.status == "fail" and f.severity == "error"]
    assert expected <= {f.id for f in findings if f.status == "fail"}


REFUSED = {
    "phi4-mini-template": (
        llama(3072, 24, 8, 8192, 200_064, 131_072, model_type="phi3", tie_word_embeddings=True), "head.tied",
    ),
    "gpt-oss-moe-drafter": (
        llama(2880, 64, 8, 17_280, 201_088, 4096, architectures=["GptOssForCausalLMEagle3"]), "config.class",
    ),
    "qwen3-moe-drafter": (
        llama(2048, 32, 4, 6144, 151_936, 262_144, architectures=["Qwen3MoEForCausalLMEagle3"]), "config.class",
    ),
    "vllm-name": (
        llama(4096, 32, 8, 14_336, 128_256, 2048, architectures=["Eagle3LlamaForCausalLM"]), "config.class",
    ),
    "speculators": (
        {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32_000,
            "transformer_layer_config": llama(4096, 32, 8, 14_336, 128_256, 2048),
        },
        "config.nested",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_published_config_that_sglang_cannot_serve_has_one_cause(name: str, tmp_path: Path) -> None:
    config, cause = REFUSED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = shape_of(
        llama(4096, 32, 8, 14_336, 128_256, 2048)
        if "transformer_layer_config" in config
        else config | {"architectures": [LLAMA]}
    )
    assert shape is not None
    d2t, t2d = build.mapping(np.random.default_rng(0), draft=32_000, vocab=shape.vocab)
    tensors = file_names(shape, layer="midlayer.", embedding=False)
    tensors["lm_head.weight"] = (32_000, shape.hidden)
    write_sparse(tmp_path / "model.safetensors", tensors, {"d2t": d2t, "t2d": t2d})
    findings = inspect(tmp_path)
    assert [f.id for f in findings if f.status == "fail" and f.severity == "error"] == [cause]
