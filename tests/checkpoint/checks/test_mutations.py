"""One fault at a time: the check that is made for it is the only one that fails, with the right culprit."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_specprobe.checkpoint.diff import diff
from pytest_specprobe.checkpoint.inspect import CHECKS, inspect
from pytest_specprobe.findings import Finding
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_builder import HIDDEN, RNG, VOCAB, Checkpoint
from tests.support.checkpoint_faults import MUTATIONS, Mutation, drop, eagle, remap, split, two_layers


def wrong(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.status == "fail"]


@pytest.fixture(params=[build.llama, build.mla], ids=["llama", "mla"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    return request.param().save(tmp_path / "drafter"), build.target().save(tmp_path / "target")


def test_a_valid_drafter_is_clean(pair: tuple[Path, Path]) -> None:
    drafter, target = pair
    assert wrong(inspect(drafter, target=target, sample_ids=[build.STOP])) == []
    assert wrong(inspect(drafter)) == []


FIXTURES = Path(__file__).parents[3] / "fixtures"
TABLES = ("model.embed_tokens.weight", "lm_head.weight")
BASES: dict[str, Callable[[], tuple[Checkpoint, Checkpoint]]] = {
    "tiny": lambda: (build.llama(), build.target()),
    "scratch_k25_mini": lambda: (_mini("scratch_k25_mini"), _mini("mini_k25", only=TABLES)),
    "dense_mini": lambda: (_mini("dense_mini"), _mini("mini_llama", only=TABLES)),
}


def _mini(name: str, *, only: Collection[str] = ()) -> Checkpoint:
    return build.load(FIXTURES / name, only=only)


def _pairs() -> Iterator[Any]:
    """Every fault on every base that can have it."""
    for mutation in MUTATIONS:
        # No mini drafter is of the MLA class, and a Llama-shaped one does not follow an MLA target's scaling.
        bases = ["tiny"] if mutation.base else list(BASES)
        if mutation.finding == "rope.scaling":
            bases.remove("scratch_k25_mini")
        for base in bases:
            yield pytest.param(mutation, base, id=f"{mutation.finding}-{mutation.name.replace(' ', '-')}-{base}")


@pytest.mark.parametrize(("mutation", "base"), list(_pairs()))
def test_one_fault_gives_its_finding_only(mutation: Mutation, base: str, tmp_path: Path) -> None:
    drafter, target = BASES[base]()
    if mutation.base is not None:
        drafter = mutation.base()
    path, beside, options = mutation.save(tmp_path, drafter=drafter, target=target)

    found = wrong(inspect(path, target=beside, **options))

    # Facts that are told beside whatever else is wrong: a mapping without t2d, layers that the config does not name.
    found = [f for f in found if f.severity != "info" or f.id == mutation.finding]
    assert [(f.id, f.culprit) for f in found] == [(mutation.finding, mutation.culprit)]
    assert all((found[0].seen, found[0].expected, found[0].why, found[0].fix))


@pytest.mark.parametrize(
    ("drafter", "target", "warnings"),
    [
        ("aq_k2_mini", "mini_k25", ["rope.positions"]),
        ("aq_k2_mini", "mini_k2", ["rope.positions"]),
        ("scratch_k25_mini", "mini_k25", []),
        ("dense_mini", "mini_llama", []),
    ],
)
def test_the_mini_family_is_clean(drafter: str, target: str, warnings: list[str]) -> None:
    alone = wrong(inspect(FIXTURES / drafter))
    assert [f.id for f in alone if f.severity != "info"] == []
    beside = wrong(inspect(FIXTURES / drafter, target=FIXTURES / target))
    assert [f.id for f in beside if f.severity != "info"] == warnings
    assert {f.id for f in (*alone, *beside) if f.severity == "info"} <= {"fc.aux-absent"}


def test_the_two_k25_drafters_differ_in_most_entries() -> None:
    found = diff(FIXTURES / "aq_k2_mini", FIXTURES / "scratch_k25_mini")
    assert found.entries == 512
    assert found.differing > found.entries // 2
    assert found.head == "different"
    assert [f.status for f in found.findings] == ["pass"]


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


def test_a_second_layer_needs_no_input_norm(tmp_path: Path) -> None:
    """Only the first layer reads it, so exporters leave it out."""
    drafter = build.llama()
    two_layers(drafter)
    drop("layers.1.input_layernorm.weight")(drafter)
    assert wrong(inspect(drafter.save(tmp_path))) == []


def test_fused_projections_are_clean(tmp_path: Path) -> None:
    drafter = build.llama()
    for fused, parts in {"self_attn.qkv_proj": ("q", "k", "v"), "mlp.gate_up_proj": ("gate", "up")}.items():
        room = fused.partition(".")[0]
        joined = [drafter.tensors.pop(f"midlayer.{room}.{part}_proj.weight") for part in parts]
        drafter.tensors[f"midlayer.{fused}.weight"] = np.concatenate(joined)
    assert wrong(inspect(drafter.save(tmp_path))) == []


@pytest.mark.parametrize("moved", ["norms", "matrices"])
def test_either_norms_or_matrices_moved_is_training(moved: str, tmp_path: Path) -> None:
    """A short training may leave one of them as it was: only both together look untouched."""
    drafter, rng = build.llama(), np.random.default_rng(0)
    for name, value in drafter.tensors.items():
        if value.dtype == np.float16 and (value.ndim == 1) != (moved == "norms"):
            fresh = np.ones(value.shape) if value.ndim == 1 else 0.02 * rng.standard_normal(value.shape)
            drafter.tensors[name] = fresh.astype(np.float16)
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
        remap(lambda c: np.arange(VOCAB))(drafter)
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
