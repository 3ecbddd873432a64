"""The committed mini family is what fixtures/README.md and its manifest say; nothing is trained or served here."""

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from fixtures.build.figures import table
from fixtures.build.recipe import Recipe
from fixtures.build.tokenizer import load_tokenizer, prompt_ids
from pytest_specprobe.measure.workloads import load_workload

ROOT = Path(__file__).parents[2]
FAMILY = ROOT / "fixtures"
TARGETS = ("mini_k2", "mini_k25", "mini_llama")
DRAFTERS = {"aq_k2_mini": "mini_k2", "scratch_k25_mini": "mini_k25", "dense_mini": "mini_llama"}
FIGURES: dict[str, Any] = json.loads((FAMILY / "figures.json").read_text())
MANIFEST: dict[str, dict[str, Any]] = json.loads((FAMILY / "manifest.json").read_text())


def config(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FAMILY / name / "config.json").read_text())
    return read


def tensor(name: str, key: str) -> np.ndarray:
    with safe_open(FAMILY / name / "model.safetensors", "np") as file:
        return np.asarray(file.get_tensor(key))


def draft_ids(name: str) -> np.ndarray:
    d2t = tensor(name, "d2t")
    return np.asarray(d2t + np.arange(len(d2t)))


def test_manifest_lists_every_file_with_its_digest() -> None:
    found = {
        str(p.relative_to(FAMILY)): {"bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()}
        for name in (*TARGETS, *DRAFTERS)
        for p in (FAMILY / name).iterdir()
    }
    assert found == MANIFEST


def test_family_is_small_enough_to_travel() -> None:
    assert sum(entry["bytes"] for entry in MANIFEST.values()) <= 15_000_000


def test_readme_shows_the_figures_of_the_build() -> None:
    assert table(FIGURES) in (FAMILY / "README.md").read_text()


@pytest.mark.parametrize("name", ["mini_k2", "mini_k25"])
def test_generations_have_the_shape_of_deepseek_v3(name: str) -> None:
    read = config(name)
    assert read["architectures"] == ["DeepseekV3ForCausalLM"]
    assert read["num_hidden_layers"] >= 8
    assert min(read["kv_lora_rank"], read["q_lora_rank"]) > 0
    assert read["n_routed_experts"] > read["num_experts_per_tok"]
    assert (read["topk_method"], read["scoring_func"], read["moe_layer_freq"]) == ("noaux_tc", "sigmoid", 1)
    scaling = read["rope_scaling"]
    assert (scaling["rope_type"], scaling["rope_theta"]) == ("yarn", read["rope_theta"])
    assert scaling["factor"] * scaling["original_max_position_embeddings"] == read["max_position_embeddings"]


def test_generations_differ_in_weights_alone() -> None:
    assert config("mini_k2") == config("mini_k25")
    assert MANIFEST["mini_k2/model.safetensors"] != MANIFEST["mini_k25/model.safetensors"]


def test_dense_target_is_a_llama() -> None:
    read = config("mini_llama")
    assert (read["architectures"], read["num_hidden_layers"]) == (["LlamaForCausalLM"], 8)


def test_all_targets_speak_one_tokenizer() -> None:
    assert len({MANIFEST[f"{name}/tokenizer.json"]["sha256"] for name in TARGETS}) == 1


@pytest.mark.parametrize("name", TARGETS)
def test_end_of_turn_is_a_stop_token_everywhere(name: str) -> None:
    tokenizer = Tokenizer.from_file(str(FAMILY / name / "tokenizer.json"))
    settings = json.loads((FAMILY / name / "tokenizer_config.json").read_text())
    end = tokenizer.token_to_id("<|end|>")
    assert tokenizer.get_vocab_size() == config(name)["vocab_size"]
    assert tokenizer.token_to_id(settings["eos_token"]) == end
    assert end in config(name)["eos_token_id"]
    assert end in json.loads((FAMILY / name / "generation_config.json").read_text())["eos_token_id"]


@pytest.mark.parametrize("name", TARGETS)
def test_chat_template_renders_as_the_training_data_did(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FAMILY / name)
    text = "Implement f(x): return x\n    twice."
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
    )
    assert rendered == prompt_ids(load_tokenizer(FAMILY / name), text)
    assert tokenizer.decode(rendered) == f"<|bos|><|user|>{text}<|end|><|assistant|>"


@pytest.mark.parametrize(("name", "target"), DRAFTERS.items())
def test_mapping_is_valid(name: str, target: str) -> None:
    d2t, t2d, ids = tensor(name, "d2t"), tensor(name, "t2d"), draft_ids(name)
    assert (d2t.dtype.name, t2d.dtype.name) == ("int64", "bool")
    assert t2d.shape == (config(target)["vocab_size"],)
    assert np.array_equal(np.flatnonzero(t2d), ids)
    assert len(ids) == config(name)["draft_vocab_size"] == len(tensor_shape(name, "lm_head.weight", axis=0))
    assert d2t.any()


def tensor_shape(name: str, key: str, *, axis: int) -> range:
    with safe_open(FAMILY / name / "model.safetensors", "np") as file:
        return range(file.get_slice(key).get_shape()[axis])


@pytest.mark.parametrize(("name", "target"), DRAFTERS.items())
def test_stop_tokens_can_be_drafted(name: str, target: str) -> None:
    assert set(config(target)["eos_token_id"]) <= set(draft_ids(name).tolist())


@pytest.mark.parametrize(("name", "target"), DRAFTERS.items())
def test_drafter_fits_its_target(name: str, target: str) -> None:
    mine, theirs = config(name), config(target)
    assert mine["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (mine["hidden_size"], mine["vocab_size"]) == (theirs["hidden_size"], theirs["vocab_size"])
    assert len(tensor_shape(name, "fc.weight", axis=1)) == 3 * theirs["hidden_size"]


def test_only_the_moved_drafter_needs_its_positions_patched() -> None:
    limits = {name: config(name)["max_position_embeddings"] for name in (*TARGETS, *DRAFTERS)}
    assert limits.pop("aq_k2_mini") == 1024
    assert set(limits.values()) == {2048}


def test_mappings_of_the_two_drafters_differ_in_most_entries() -> None:
    left, right = draft_ids("aq_k2_mini"), draft_ids("scratch_k25_mini")
    differing = int((left != right).sum())
    assert differing == FIGURES["mapping"]["differing"]
    assert differing > len(left) / 2


def test_workload_is_sixteen_prompts_of_each_domain() -> None:
    chats = load_workload("mini", root=ROOT).chats
    assert sorted(chat.workload for chat in chats) == ["code"] * 16 + ["docs"] * 16


@pytest.mark.parametrize("prompts", ["32", "24"])
def test_figures_replay_the_founding_story(prompts: str) -> None:
    lower = {name: low for name, (low, _) in FIGURES["comparisons"][prompts].items()}
    assert len(lower) == 4
    assert min(lower.values()) > 0
    assert 1.3 <= FIGURES["pairs"]["aq_k2_mini on mini_k25"]["accept_length"] <= 1.6
    assert FIGURES["pairs"]["dense_mini on mini_llama"]["accept_length"] >= 1.6


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("domain", ["code", "docs"])
def test_workload_answers_mostly_stop_by_themselves(name: str, domain: str) -> None:
    assert FIGURES["targets"][name][domain]["workload_stop"] >= 0.75


def test_the_builder_makes_by_default_what_made_these_files() -> None:
    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(item) for item in value]
        return round(value, 9) if isinstance(value, float) else value

    assert rounded(asdict(Recipe())) == rounded(FIGURES["recipe"])


def test_readme_names_licence_and_command() -> None:
    text = (FAMILY / "README.md").read_text()
    assert re.search(r"Python Software Foundation", text)
    assert "python -m fixtures.build" in text
    assert FIGURES["corpus"]["sha256"] in text
