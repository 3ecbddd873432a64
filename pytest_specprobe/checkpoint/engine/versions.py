"""Which SGLang version first read what a drafter may contain, found by comparing releases 0.5.9 to 0.5.23."""

import re
from collections.abc import Iterator

from pytest_specprobe.checkpoint.engine.shape import DEFAULT_AUX, MLA, Shape
from pytest_specprobe.checkpoint.files.read import Weights

Version = tuple[int, int, int]
OLDEST: Version = (0, 5, 9)


def parse_version(text: str) -> Version | None:
    """Return the first three numbers of a version (``0.5.10.post1`` is 0.5.10), or None."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def shown_version(version: Version) -> str:
    """Return ``0.5.12``."""
    return ".".join(map(str, version))


def needed_version(shape: Shape, weights: Weights, *, norm_output: bool) -> tuple[Version, str]:
    """Return the oldest SGLang that reads all of a drafter, and the feature that decides it."""
    needs = list(_needs(shape, weights, norm_output=norm_output))
    return max(needs, default=(OLDEST, "nothing newer"))


def _needs(shape: Shape, weights: Weights, *, norm_output: bool) -> Iterator[tuple[Version, str]]:
    mla = shape.architecture == MLA
    if mla:
        yield (0, 5, 12), f"the class {MLA}"
    elif any("layers." in name for name in weights.tensors):
        # Older loaders knew 'midlayer.' only and dropped these tensors in silence.
        yield (0, 5, 12), "tensor names with 'layers.'"
    if shape.fc_norm:
        yield (0, 5, 13) if mla else (0, 5, 12), "fc_norm"
    if norm_output:
        yield (0, 5, 13) if mla else (0, 5, 12), "norm_output"
    if shape.layers > 1:
        yield (0, 5, 12), "more than one layer"
    if shape.aux != DEFAULT_AUX:
        yield (0, 5, 12), f"{shape.aux} auxiliary layers"
    if shape.norm_before_fc:
        yield (0, 5, 17), "norm_before_fc"
