"""What sampled values say: types, numbers that are none, and matrices that look as if no training touched them."""

import numpy as np
import numpy.typing as npt

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.accounting import Account, account, names
from pytest_specprobe.checkpoint.files.header import FLOAT_DTYPES, TensorInfo
from pytest_specprobe.checkpoint.files.values import sample

_SKIP = "the drafter's class, sizes or files could not be read"
Values = npt.NDArray[np.float32]


def _used(found: Account) -> list[TensorInfo]:
    """Return the float tensors that the engine keeps: a shared embedding is replaced by the target's."""
    borrowed = {"model.embed_tokens.weight"} if found.shape.borrows_embedding else set()
    return [t for slot, t in found.filled.items() if slot.parameter not in borrowed and t.dtype in FLOAT_DTYPES]


def _samples(s: Subject) -> dict[str, Values]:
    found = account(s)
    if found is None:
        return {}
    values = {tensor.name: sample(tensor) for tensor in _used(found)}
    return {name: v for name, v in values.items() if v is not None and v.size}


@check(
    "tensor.not-finite",
    asks="sampled weights are finite",
    why="NaN logits accept every draft or none, and accept length sits at its maximum or at 1.",
    fix="export from a checkpoint before training diverged",
)
def not_finite(s: Subject) -> Outcome:
    """NaN and infinity."""
    samples = _samples(s)
    if not samples:
        return skipped(_SKIP)
    bad = [name for name, values in samples.items() if not np.isfinite(values).all()]
    return judged(
        f"NaN or infinity in {names(bad)}" if bad else "", expected="finite values", good=f"{len(samples)} tensors"
    )


@check(
    "tensor.constant",
    asks="no weight matrix is constant",
    why="A matrix of zeros (or of one value) passes nothing on: the drafter cannot see what it multiplies.",
    fix="export the trained weights; an all-zero fc is the blind control, not a drafter",
    follows=("tensor.not-finite",),
)
def constant(s: Subject) -> Outcome:
    """Find sampled matrices with one value."""
    samples, found = _samples(s), account(s)
    if not samples or found is None:
        return skipped(_SKIP)
    matrices = {t.name for t in found.filled.values() if len(t.shape) == 2}
    bad = [name for name, values in samples.items() if name in matrices and values.min() == values.max()]
    return judged(
        f"constant: {names(bad)}" if bad else "", expected="trained values", good=f"{len(matrices)} matrices"
    )


@check(
    "tensor.untrained",
    severity="warning",
    asks="the weights look trained",
    why="A placeholder with random weights loads without complaint; SGLang's accept length still reads above 1.0.",
    fix="check that the export took the trained model",
    follows=("tensor.not-finite", "tensor.constant"),
)
def untrained(s: Subject) -> Outcome:
    """Every norm exactly one and every matrix as an initialiser leaves it."""
    samples, found = _samples(s), account(s)
    if not samples or found is None:
        return skipped(_SKIP)
    matrices = {t.name for t in found.filled.values() if len(t.shape) == 2}
    norms = [v for name, v in samples.items() if name not in matrices and name.endswith("norm.weight")]
    large = [v for name, v in samples.items() if name in matrices and v.size >= 4096]
    if not norms or not large or not all((v == 1).all() for v in norms):
        return passed("norms moved")
    if not all(_as_initialised(v) for v in large):
        return passed("matrices moved")
    spread = ", ".join(f"{v.std():.4f}" for v in large[:3])
    return failed(
        f"all norms exactly 1 and {len(large)} matrices as initialised (std {spread})", expected="trained values"
    )


def _as_initialised(values: Values) -> bool:
    """Whether a sample is flat normal or uniform noise around zero: its kurtosis is that of either (3 or 1.8)."""
    spread = float(values.std())
    if spread == 0 or abs(float(values.mean())) > 0.05 * spread:
        return False
    kurtosis = float(((values / spread) ** 4).mean())
    # Three standard errors of a normal sample's kurtosis, sqrt(24 / n), with room for bf16 rounding.
    room = 3 * (24 / values.size) ** 0.5 + 0.02
    return bool(min(abs(kurtosis - 3.0), abs(kurtosis - 1.8)) < room)


@check(
    "tensor.dtype",
    severity="warning",
    asks="matrices are of one float type",
    why="Re-quantisation that left part of the draft in another format gave 14.7 % acceptance for 50.8 %.",
    fix="convert all matrices to one dtype",
)
def dtype(s: Subject) -> Outcome:
    """Dtype census of the matrices in use; norms may be kept in float32."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    census: dict[str, list[str]] = {}
    for tensor in found.filled.values():
        if len(tensor.shape) == 2 and tensor.name.rpartition(".")[2] == "weight":
            census.setdefault(tensor.dtype, []).append(tensor.name)
    if len(census) <= 1:
        return passed(next(iter(census), "no matrix"))
    rare = min(census, key=lambda key: len(census[key]))
    return failed(
        f"{rare} in {names(census[rare])}", expected=f"{max(census, key=lambda k: len(census[k]))} throughout"
    )


CHECKS: tuple[Check, ...] = (not_finite, constant, untrained, dtype)
