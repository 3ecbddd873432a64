"""Which layers of a target SGLang captures for a drafter, as its target classes decide it.

"Before layer i" is the input of layer i, which is the output of layer i - 1. Facts of SGLang 0.5.23; a test calls the
installed classes and compares.
"""

from collections.abc import Sequence

# Most classes take an id as "the output of that layer". DeepSeek-type ones do so only when the first id is 1 and
# otherwise take the id itself (0.5.12 still added one always).
_DEEPSEEK = (
    "DeepseekV2For", "DeepseekV3For", "DeepseekV32For", "KimiK25For", "MistralLarge3For", "GlmMoeDsaFor",
    "Glm4MoeLiteFor",
)  # fmt: skip
# Classes whose forward pass looks at the input of a layer only, so that the output of the last layer is never taken.
_NO_FINAL = (*_DEEPSEEK, "LlamaFor", "Glm4MoeFor", "BailingMoE", "ApertusFor", "MistralFor", "Phi3For")


def is_deepseek(architecture: str | None) -> bool:
    """Whether a target class reads ids the DeepSeek way."""
    return (architecture or "").startswith(_DEEPSEEK)


def default_layers(layers: int) -> list[int]:
    """Return the layers before which SGLang captures when the drafter names none: its rule for n layers."""
    return [2, layers // 2, layers - 3]


def captured_layers(ids: Sequence[int], *, architecture: str | None, layers: int) -> list[int]:
    """Return the layers before which a target of this class captures, for explicit ids."""
    if is_deepseek(architecture) and ids and ids[0] != 1:
        return list(ids)
    if (architecture or "").startswith("GptOss") and ids and max(ids) == layers:
        return list(ids)
    return [i + 1 for i in ids]


def last_layer(architecture: str | None, *, layers: int) -> int:
    """Return the largest 'before layer' that this class can capture: n - 1, or n (the final output) where it can."""
    return layers - 1 if (architecture or "").startswith(_NO_FINAL) else layers
