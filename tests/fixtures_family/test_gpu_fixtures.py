"""The models for a GPU: a random pair passes the static gate, and a widened target computes what it computed."""

import json
import shutil
from pathlib import Path

import pytest

from pytest_specprobe.checkpoint.inspect import inspect

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
random_pair = pytest.importorskip("fixtures.build.random_pair")
smollm2 = pytest.importorskip("fixtures.build.smollm2")


@pytest.mark.parametrize("shape", ["llama", "deepseek"])
def test_a_random_pair_is_wired_right_and_looks_untrained(shape: str, tmp_path: Path) -> None:
    config = random_pair.target_config(shape, layers=7, shrink=64)
    random_pair.write_target(config, tmp_path / "target", device="cpu")
    random_pair.write_drafter(config, tmp_path / "drafter")
    failing = [f for f in inspect(tmp_path / "drafter", target=tmp_path / "target") if f.status == "fail"]
    assert not [f for f in failing if f.severity == "error"]
    assert "tensor.untrained" in {f.id for f in failing}


def test_a_wider_target_says_the_same(tmp_path: Path) -> None:
    config = random_pair.target_config("llama", layers=2, shrink=64)
    random_pair.write_target(config, tmp_path / "target", device="cpu")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "one")
    for name in ("tokenizer.json", "config.json"):
        shutil.copyfile(tmp_path / "target" / name, tmp_path / "one" / name)
    smollm2.widen(tmp_path / "one", tmp_path / "wide", times=3)
    assert json.loads((tmp_path / "wide" / "config.json").read_text())["intermediate_size"] == 3 * 224
    wide = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "wide", dtype=torch.float32)
    ids = torch.arange(7, 40)[None]
    with torch.no_grad():
        said, wanted = wide(ids).logits, model.float()(ids).logits
    assert torch.allclose(said, wanted, atol=1e-4)
    assert wide.model.layers[0].mlp.up_proj.weight[224:].abs().max() > 0
