"""What a plan says of GPU memory."""

from pathlib import Path

from pytest_specprobe.probe.plan.weights import Weights, weights_of

GIB = 2**30


def test_weights_are_spread_over_the_gpus_and_held_against_the_smallest() -> None:
    held = Weights(target=580 * GIB, drafter=2 * GIB, tp=8, gpus_mib=(97_887, 95_000))
    assert held.of_each == 72.75 * GIB
    assert held.fit
    (line,) = held.lines()
    assert line.startswith("  GPU memory    at least 72.8 GiB of weights on each GPU")
    assert "(target 580.0 GiB, drafter 2.0 GiB, over tp 8)" in line


def test_weights_that_cannot_fit_are_said() -> None:
    held = Weights(target=1920 * GIB, drafter=2 * GIB, tp=8, gpus_mib=(143_771,))
    assert held.fit is False
    assert list(held.lines())[1].strip() == "they do not fit: a GPU here has 140 GiB"
    assert Weights(target=1, drafter=1, tp=1, gpus_mib=()).fit is None


def test_only_weight_files_count_and_both_must_be_there(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"x" * 10)
    held = weights_of(tmp_path, tmp_path, tp=2, gpus_mib=[])
    assert held is not None
    assert (held.target, held.drafter, held.of_each) == (20, 20, 20.0)
    assert weights_of(tmp_path, None, tp=1, gpus_mib=[]) is None
