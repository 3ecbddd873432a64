"""The position patch follows SGLang's own derivation and edits nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.errors import CheckpointError
from pytest_specprobe.staging.positions import context_length, patch_positions


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 131072}, 131072),
        ({}, 2048),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        (
            {
                "max_position_embeddings": 262144,
                "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096},
            },
            262144,
        ),
        ({"max_sequence_length": 100, "max_position_embeddings": 200}, 100),
        ({"text_config": {"max_position_embeddings": 64}, "max_position_embeddings": 1}, 64),
    ],
)
def test_context_length_as_sglang_derives_it(config: dict[str, Any], expected: int) -> None:
    assert context_length(config) == expected


@pytest.mark.parametrize(
    ("config", "target", "edits"),
    [
        ({"max_position_embeddings": 131072}, 262144, {"max_position_embeddings": (131072, 262144)}),
        ({"max_position_embeddings": 262144}, 262144, {}),
        ({"max_position_embeddings": 524288}, 262144, {}),
        ({}, 4096, {"max_position_embeddings": (None, 4096)}),
        (
            {"max_position_embeddings": 1000, "rope_scaling": {"type": "linear", "factor": 4.0}},
            8001,
            {"max_position_embeddings": (1000, 2001)},
        ),
        ({"max_position_embeddings": 1000, "rope_scaling": {"type": "linear", "factor": 4.0}}, 4000, {}),
        (
            {"max_seq_len": 100, "max_position_embeddings": 50},
            200,
            {"max_seq_len": (100, 200), "max_position_embeddings": (50, 200)},
        ),
        ({"max_seq_len": 100, "max_position_embeddings": 400}, 200, {"max_seq_len": (100, 200)}),
        (
            {"text_config": {"max_position_embeddings": 64}},
            128,
            {"text_config.max_position_embeddings": (64, 128)},
        ),
    ],
)
def test_every_edit_is_listed(config: dict[str, Any], target: int, edits: dict[str, Any]) -> None:
    before = repr(config)
    patched, seen = patch_positions(config, target_positions=target)
    assert seen == edits
    assert context_length(patched) >= target
    assert repr(config) == before


@pytest.mark.parametrize("value", [0, -1, True, "2048", 1.5, 10**400])
def test_a_length_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match="not a positive integer"):
        patch_positions({"max_position_embeddings": value}, target_positions=10)


@pytest.mark.parametrize("factor", [0, -2.0, "8", True, float("nan"), float("inf"), 1e-320, 10**400, None])
def test_a_rope_factor_that_is_none_is_refused(factor: object) -> None:
    with pytest.raises(CheckpointError, match="RoPE factor"):
        context_length({"max_position_embeddings": 8, "rope_scaling": {"factor": factor}})


@given(
    own=st.integers(1, 1 << 20),
    factor=st.floats(0.5, 64, allow_nan=False),
    target=st.integers(1, 1 << 22),
    theta=st.floats(1, 1e7),
)
def test_the_patch_reaches_the_target_and_leaves_rope_alone(
    own: int, factor: float, target: int, theta: float
) -> None:
    config = {
        "max_position_embeddings": own,
        "rope_theta": theta,
        "rope_scaling": {"type": "linear", "factor": factor},
    }
    patched, edits = patch_positions(config, target_positions=target)
    assert context_length(patched) >= target
    assert {k: v for k, v in patched.items() if k != "max_position_embeddings"} == {
        k: v for k, v in config.items() if k != "max_position_embeddings"
    }
    assert bool(edits) == (context_length(config) < target)
    assert patch_positions(patched, target_positions=target) == (patched, {})
