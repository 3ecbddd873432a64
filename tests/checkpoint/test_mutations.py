"""One fault at a time: the check that is made for it is the only one that fails, with the right culprit."""

from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.checkpoint.inspect import CHECKS, inspect
from pytest_specprobe.findings import Finding
from tests.checkpoint import checkpoint_builder as build
from tests.checkpoint.checkpoint_builder import HIDDEN, VOCAB
from tests.checkpoint.faults import MUTATIONS, RNG, Mutation, drop, eagle, remap, split, two_layers


def wrong(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.status == "fail"]


@pytest.fixture(params=[build.llama, build.mla], ids=["llama", "mla"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    return request.param().save(tmp_path / "drafter"), build.target().save(tmp_path / "target")


def test_a_valid_drafter_is_clean(pair: tuple[Path, Path]) -> None:
    drafter, target = pair
    assert wrong(inspect(drafter, target=target, sample_ids=[build.STOP])) == []
    assert wrong(inspect(drafter)) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.finding}-{m.name.replace(' ', '-')}")
def test_one_fault_gives_its_finding_only(mutation: Mutation, tmp_path: Path) -> None:
    drafter, target = mutation.base(), build.target()
    mutation.drafter(drafter)
    mutation.target(target)
    path = drafter.save(tmp_path / "drafter")
    mutation.spoil(path)
    options = dict(mutation.options)
    if "parent" in options:
        options["parent"] = tmp_path / options["parent"]

    found = wrong(inspect(path, target=target.save(tmp_path / "target"), **options))

    # Without t2d the mapping is less checkable, which is said beside whatever else is wrong.
    found = [f for f in found if f.id != "vocab.t2d-missing" or mutation.finding == "vocab.t2d-missing"]
    assert [(f.id, f.culprit) for f in found] == [(mutation.finding, mutation.culprit)]
    assert all((found[0].seen, found[0].expected, found[0].why, found[0].fix))


def test_every_check_has_a_mutation() -> None:
    # fc.aux-capture states a fact and target.shards needs a sharded target: both have tests of their own.
    # file.* reading checks share one mechanism and are all there.
    expected = {check.id for check in CHECKS} - {"fc.aux-capture", "target.shards"}
    assert {mutation.finding for mutation in MUTATIONS} == expected


@pytest.mark.parametrize("names", ["midlayer.", "layers.0.", "model.layers.0.", "model.midlayer."])
def test_every_naming_family_of_the_llama_class_is_clean(names: str, tmp_path: Path) -> None:
    drafter = build.llama()
    drafter.rename(lambda name: name.replace("midlayer.", names))
    assert wrong(inspect(drafter.save(tmp_path))) == []


def test_layers_0_is_clean_for_the_mla_class(tmp_path: Path) -> None:
    drafter = build.mla()
    drafter.rename(lambda name: name.replace("midlayer.", "layers.0."))
    assert wrong(inspect(drafter.save(tmp_path))) == []


def testtwo_layers_are_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    two_layers(drafter)
    found = inspect(drafter.save(tmp_path))
    assert wrong(found) == []
    needed = next(f for f in found if f.id == "config.engine-version")
    assert "0.5.12" in needed.seen


def test_fused_projections_are_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    for fused, parts in {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")}.items():
        room = fused.partition(".")[0]
        joined = [drafter.tensors.pop(f"midlayer.{room}.{part}_proj.weight") for part in parts]
        drafter.tensors[f"midlayer.{fused}.weight"] = np.concatenate(joined)
    assert wrong(inspect(drafter.save(tmp_path))) == []


def test_norms_with_their_flags_are_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    names = dict(zip(("low", "mid", "high"), RNG.standard_normal((3, HIDDEN)).astype(np.float16), strict=True))
    drafter.tensors |= {f"aux_norm_{name}.weight": value for name, value in names.items()}
    drafter.tensors["input_norm.weight"] = build.norm(RNG, 3 * HIDDEN)
    drafter.config |= {"use_aux_norm": True, "norm_before_fc": True, "norm_output": True}
    assert wrong(inspect(drafter.save(tmp_path))) == []


def test_biases_with_their_flags_are_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    drafter.config |= {"bias": True}
    drafter.tensors |= {n: build.trained(RNG, HIDDEN) for n in ("fc.bias", "midlayer.self_attn.o_proj.bias")}
    assert wrong(inspect(drafter.save(tmp_path))) == []


def test_a_drafter_that_borrows_the_targets_head_is_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    drop("d2t", "t2d", "lm_head.weight")(drafter)
    drafter.config["draft_vocab_size"] = None
    assert wrong(inspect(drafter.save(tmp_path / "d"), target=build.target().save(tmp_path / "t"))) == []


@pytest.mark.parametrize("mapped", [True, False])
def test_a_full_vocabulary_needs_no_mapping_and_takes_the_identity(mapped: bool, tmp_path: Path) -> None:
    drafter = build.llama()
    drop("d2t", "t2d")(drafter)
    drafter.config["draft_vocab_size"] = VOCAB
    drafter.tensors["lm_head.weight"] = build.trained(RNG, VOCAB, HIDDEN)
    if mapped:
        remap(np.arange(VOCAB))(drafter)
    assert wrong(inspect(drafter.save(tmp_path / "d"), target=build.target().save(tmp_path / "t"))) == []


def test_a_drafter_without_auxiliary_states_needs_no_fc(tmp_path: Path) -> None:
    drafter = build.llama()
    drop("fc.weight")(drafter)
    eagle(use_aux_hidden_state=False)(drafter)
    assert [f.id for f in wrong(inspect(drafter.save(tmp_path)))] == ["fc.aux-off"]


def test_shards_with_an_index_are_clean(tmp_path: Path) -> None:
    path = build.llama().save(tmp_path)
    split(path)
    assert wrong(inspect(path)) == []


def test_a_quantised_drafter_is_accounted_for(tmp_path: Path) -> None:
    drafter = build.llama()
    name = "midlayer.mlp.down_proj"
    drop(f"{name}.weight")(drafter)
    drafter.config["quantization_config"] = {"quant_method": "compressed-tensors"}
    drafter.tensors |= {
        f"{name}.weight_packed": np.zeros((HIDDEN, 12), dtype=np.int32),
        f"{name}.weight_scale": build.trained(RNG, HIDDEN, 3),
        f"{name}.weight_shape": np.array([HIDDEN, 96]),
    }
    assert wrong(inspect(drafter.save(tmp_path))) == []
