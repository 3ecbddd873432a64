"""What is read of a drafter's and a target's directory, and how odd directories end."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pytest_specprobe.checkpoint.files.read import load_drafter, load_target
from pytest_specprobe.checkpoint.inspect import inspect
from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.findings import Finding
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_builder import HIDDEN, STOP, VOCAB


def by_id(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings}


def failures(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.id for finding in findings if finding.status == "fail"]


def test_a_drafter_is_read_whole(tmp_path: Path) -> None:
    made = build.llama()
    found = load_drafter(made.save(tmp_path))
    assert found.config == made.config
    assert found.weights.tensors.keys() == made.tensors.keys()
    assert found.weights.nbytes == sum(value.nbytes for value in made.tensors.values())
    assert found.listing == ("config.json", "model.safetensors")


def test_a_vision_language_target_is_unwrapped(tmp_path: Path) -> None:
    target = build.target()
    inner = target.config | {"architectures": ["DeepseekV3ForCausalLM"]}
    target.config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": inner,
        "model_type": "kimi_k25",
    }
    target.tensors = {f"language_model.{name}": value for name, value in target.tensors.items()}
    target.tensors["vision_tower.embed_tokens.weight"] = np.zeros((4, 4), dtype=np.float16)
    found = load_target(target.save(tmp_path))
    assert found.config["num_hidden_layers"] == 8
    assert found.architecture == "DeepseekV3ForCausalLM"
    assert found.vocab_rows == VOCAB
    assert found.tensors["embed"].name == "language_model.model.embed_tokens.weight"


def test_a_wrapper_whose_text_model_names_no_class_is_known_by_its_own(tmp_path: Path) -> None:
    target = build.target()
    inner = {key: value for key, value in target.config.items() if key != "architectures"}
    target.config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": inner}
    found = load_target(target.save(tmp_path))
    assert found.architecture == "KimiK25ForConditionalGeneration"
    drafter = build.llama()
    drafter.config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    seen = by_id(inspect(drafter.save(tmp_path / "d"), target=tmp_path))["fc.aux-capture"].seen
    assert "[2, 4, 5]" in seen


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config", "thinker_config"])
def test_every_key_of_a_wrapper_is_followed(key: str, tmp_path: Path) -> None:
    inner = {"text_config": build.target().config} if key == "thinker_config" else build.target().config
    (tmp_path / "config.json").write_text(json.dumps({key: inner}))
    assert load_target(tmp_path).config["hidden_size"] == HIDDEN


def test_a_bare_config_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "k25.json"
    path.write_text(json.dumps(build.target().config))
    found = load_target(path)
    assert found.vocab_rows == VOCAB
    assert found.tensors == {}
    assert failures(inspect(build.llama().save(tmp_path / "d"), target=path)) == []


def test_stop_ids_come_from_all_the_tokenizers_files(tmp_path: Path) -> None:
    target = build.target()
    target.config["eos_token_id"] = [STOP]
    target.extra["generation_config.json"] = b'{"eos_token_id": [638, 639]}'
    target.extra["tokenizer_config.json"] = json.dumps({
        "eos_token": {"content": "[EOS]"},
        "chat_template": "{{ m.content }}<|im_end|>",
        "added_tokens_decoder": {
            "630": {"content": "<|im_end|>"}, "631": {"content": "<|eot_id|>"}, "632": {"content": "[EOS]"},
            "633": {"content": "<think>"}, "x": {"content": "odd"}, "634": 7,
        },
    }).encode()  # fmt: skip
    found = load_target(target.save(tmp_path)).tokens
    # <|eot_id|> is in the tokenizer and not in the template, so no answer ends with it.
    assert dict(found.stops) == {638: "eos", 639: "eos", 630: "<|im_end|>", 632: "[EOS]"}
    assert found.size == 634


@pytest.mark.parametrize(
    ("name", "body", "size"),
    [
        ("tokenizer.json", '{"model": {"vocab": {"a": 0, "b": 9}}, "added_tokens": [{"id": 12, "content": ""}]}', 13),
        ("tokenizer.json", json.dumps({"model": {"vocab": [["a", 0.1], ["b", 0.2]]}}), 2),
        ("tiktoken.model", "IQ== 0\nIg== 1\nIw== 2\n", 3),
        ("tokenizer.json", "not json", None),
        ("tokenizer.json", "[1]", None),
        ("tokenizer.json", '{"model": {"vocab": {"a": "b"}}, "added_tokens": [3, {"id": -4, "content": "x"}]}', None),
    ],
)  # fmt: skip
def test_the_tokenizers_size(name: str, body: str, size: int | None, tmp_path: Path) -> None:
    target = build.target()
    target.extra[name] = body.encode()
    assert load_target(target.save(tmp_path)).tokens.size == size


def _shard(path: Path, *, lose: str | None = None) -> None:
    tensors = build.target().tensors
    weight_map = {}
    for number, (name, value) in enumerate(tensors.items()):
        file = f"model-{number:05}.safetensors"
        weight_map[name] = file
        if name != lose:
            save_file({name: value}, path / file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_a_sharded_target_is_read_through_its_index(tmp_path: Path) -> None:
    path = build.Checkpoint(build.target().config, {}).save(tmp_path)
    _shard(path, lose="model.norm.weight")
    found = load_target(path)
    assert found.tensors.keys() == {"embed", "head"}
    assert found.shards_missing == ("model-00002.safetensors",)
    assert failures(inspect(build.llama().save(tmp_path / "d"), target=path)) == ["target.shards"]


def test_a_padded_vocabulary_is_no_fault(tmp_path: Path) -> None:
    target = build.target()
    target.config["vocab_size"] = VOCAB + 24
    target.tensors["model.embed_tokens.weight"] = build.trained(np.random.default_rng(0), VOCAB + 24, HIDDEN)
    target.extra["tiktoken.model"] = b"IQ== 0\n" * VOCAB
    found = by_id(inspect(build.llama().save(tmp_path / "d"), target=target.save(tmp_path / "t")))
    assert "padding" in found["target.vocab"].seen
    assert failures(tuple(found.values())) == []


@pytest.mark.parametrize("body", ["", "[]", "{", "\xff", "7", '{"a": ' + "[" * 100_000])
def test_an_unusable_target_config_is_one_error(body: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(body.encode("latin-1"))
    with pytest.raises(CheckpointError) as caught:
        load_target(tmp_path)
    assert caught.value.culprit == "target"
    assert caught.value.finding_id == "file.bad-json"


def test_a_target_with_an_lfs_pointer_for_its_embedding_is_named(tmp_path: Path) -> None:
    path = build.target().save(tmp_path)
    (path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match="LFS") as caught:
        load_target(path)
    assert caught.value.culprit == "target"


def test_a_missing_directory_is_an_error_and_no_finding(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no directory"):
        inspect(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no directory"):
        load_drafter(build.llama().save(tmp_path) / "config.json")


@pytest.mark.parametrize("outside", ["/etc/passwd", "../x.safetensors", "a/../../x.safetensors", "", "a\0b"])
def test_an_index_never_leads_elsewhere(outside: str, tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"d2t": outside}}))
    with pytest.raises(CheckpointError) as caught:
        load_drafter(path)
    assert caught.value.finding_id == "file.index-path"


@pytest.mark.parametrize("index", ["{}", '{"weight_map": 1}', '{"weight_map": {"a": 1}}', "[1]"])
def test_a_malformed_index_is_one_finding(index: str, tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    (path / "model.safetensors.index.json").write_text(index)
    assert failures(inspect(path)) == ["file.bad-json"]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    made = build.llama()
    made.config |= {"use_cache": None, "hidden_act": "gelu"}
    path = made.save(tmp_path)
    (path / "model.safetensors").write_bytes(b"")
    assert failures(inspect(path)) == ["file.truncated", "config.null-field", "config.activation"]


def test_a_broken_config_leaves_nothing_else_to_say(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    (path / "config.json").write_text("{")
    assert failures(inspect(path, target=build.target().save(tmp_path / "t"))) == ["file.bad-json"]


def test_odd_names_beside_the_weights_are_no_trouble(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    (path / b"\xff\xfe.txt".decode("utf-8", "surrogateescape")).touch()
    (path / "loop").symlink_to("loop")
    (path / "sub").mkdir()
    assert failures(inspect(path)) == []


def test_a_consolidated_copy_is_skipped_as_the_engine_skips_it(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    save_file({"other": np.zeros(2)}, path / "consolidated.safetensors")
    assert failures(inspect(path)) == []


@pytest.mark.parametrize("value", [[], {}, "x", 1.5, True, -1, 1 << 80, None])
@pytest.mark.parametrize("key", sorted(build.llama_config()))
def test_no_value_of_any_field_escapes_as_an_exception(key: str, value: Any, tmp_path: Path) -> None:
    made = build.llama()
    made.config[key] = value
    target = build.target().save(tmp_path / "t")
    assert inspect(made.save(tmp_path / "d"), target=target)


@pytest.mark.parametrize("value", [[], {}, "x", 1.5, True, -1, 1 << 80, None])
@pytest.mark.parametrize(
    "key", [*sorted(build.target().config), "rope_scaling", "rope_parameters", "quantization_config"]
)
def test_no_value_of_any_target_field_escapes_as_an_exception(key: str, value: Any, tmp_path: Path) -> None:
    target = build.target()
    target.config[key] = value
    assert inspect(build.llama().save(tmp_path / "d"), target=target.save(tmp_path / "t"))
