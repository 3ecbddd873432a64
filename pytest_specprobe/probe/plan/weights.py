"""What the weights of target and drafter take of each GPU, from the sizes of their files alone.

Invariant: a lower bound, told before anything boots. KV cache, graphs and activations come on top, and what a rank
holds whole (norms, a drafter that is not split) is counted as if it were split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LARGEST_SHARE = 0.95
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Sizes in bytes, spread over ``tp`` GPUs; ``gpus_mib`` is what each GPU of this machine has."""

    target: int
    drafter: int
    tp: int
    gpus_mib: tuple[int, ...]

    @property
    def of_each(self) -> float:
        """Return the bytes of weights on each GPU."""
        return (self.target + self.drafter) / self.tp

    @property
    def fit(self) -> bool | None:
        """Tell whether they fit the smallest GPU with a little to spare; None without GPUs to look at."""
        return self.of_each <= _LARGEST_SHARE * min(self.gpus_mib) * 2**20 if self.gpus_mib else None

    def lines(self) -> Iterator[str]:
        """Yield the lines of the plan."""
        parts = f"target {_gib(self.target)}, drafter {_gib(self.drafter)}, over tp {self.tp}"
        yield f"  GPU memory    at least {_gib(self.of_each)} of weights on each GPU ({parts}), KV cache on top"
        if self.gpus_mib and not self.fit:
            yield f"                they do not fit: a GPU here has {min(self.gpus_mib) / 1024:.0f} GiB"


def weights_of(target: Path | None, drafter: Path | None, *, tp: int, gpus_mib: Sequence[int]) -> Weights | None:
    """Return the sizes; None where a checkpoint is not there."""
    if target is None or drafter is None:
        return None
    return Weights(target=_bytes(target), drafter=_bytes(drafter), tp=tp, gpus_mib=tuple(gpus_mib))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _gib(size: float) -> str:
    return f"{size / _GIB:,.1f} GiB"
