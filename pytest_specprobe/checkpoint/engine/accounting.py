"""Tensor accounting both ways: every parameter the engine builds is filled, every tensor of the file is used.

SGLang's loader skips names it does not know and leaves parameters that no tensor filled at their random start, both
without a word (the MLA class warns about the first). A gap therefore shows only as a lower accept length.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.architectures import ARCHITECTURES, Parameter, Slot
from pytest_specprobe.checkpoint.engine.shape import MLA, Shape, shape_of
from pytest_specprobe.checkpoint.files.header import TensorInfo, shown

_SILENT = "the engine says nothing, and acceptance falls to about 1"

# Buffers that exporters leave in and no engine needs: tables computed from the config.
HARMLESS = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "position_ids")
# Suffixes of the tensors that stand for one quantised weight.
PACKED = (
    "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_shape",
    "weight_zero_point", "input_scale", "input_global_scale", "qweight", "qzeros", "scales", "g_idx",
)  # fmt: skip
# Prefixes that wrappers and other exporters put before the names.
PREFIXES = ("model.", "module.", "drafter.", "draft_model.", "eagle.", "base_model.model.", "_orig_mod.")


@dataclass(frozen=True, slots=True)
class Account:
    """Where every tensor went. ``filled`` maps slots to tensors; ``unused`` are the names the engine drops."""

    shape: Shape
    built: Mapping[str, Parameter]
    filled: Mapping[Slot, TensorInfo]
    unused: tuple[str, ...]
    quantized: frozenset[str]

    def missing(self) -> tuple[str, ...]:
        """Return the needed parameters, or parts of them, that no tensor fills."""
        return tuple(gap for name, parameter in self.built.items() if parameter.needed for gap in self._gaps(name))

    def _gaps(self, name: str) -> list[str]:
        if Slot(name) in self.filled or name in self.quantized:
            return []
        parts = self.built[name].parts
        if not parts:
            return [name]
        gaps = [part for part in parts if Slot(name, part) not in self.filled]
        return [name] if len(gaps) == len(parts) else [f"{name} ({part})" for part in gaps]

    def misshapen(self) -> tuple[tuple[TensorInfo, tuple[int, ...]], ...]:
        """Return the tensors whose shape is not the one the engine built, with that shape."""
        wrong = []
        for slot, tensor in self.filled.items():
            parameter = self.built.get(slot.parameter)
            if parameter is None or slot.parameter in self.quantized:
                continue
            wanted = parameter.parts[slot.part] if slot.part else parameter.shape
            if tensor.shape != wanted:
                wrong.append((tensor, wanted))
        return tuple(wrong)


def account(s: Subject) -> Account | None:
    """Return the account of a drafter, or None where its class, sizes or files are unusable."""
    shape = shape_of(s.config)
    if shape is None or s.weights is None:
        return None
    return account_for(shape, s.weights.tensors)


def account_for(shape: Shape, tensors: Mapping[str, TensorInfo]) -> Account:
    """Place every tensor as the engine's loader would."""
    architecture = ARCHITECTURES[shape.architecture]
    built = architecture.parameters(shape)
    filled: dict[Slot, TensorInfo] = {}
    unused: list[str] = []
    quantized: set[str] = set()
    for name, tensor in tensors.items():
        slot = architecture.place(name, built)
        if slot is not None:
            filled[slot] = tensor
        elif (packed := _packed(name)) and (whole := architecture.place(packed, built)):
            quantized.add(whole.parameter)
        else:
            unused.append(name)
    return Account(shape, built, filled, tuple(unused), frozenset(quantized))


def _packed(name: str) -> str | None:
    """Return the plain weight's name for one tensor of a quantised weight."""
    stem, _, last = name.rpartition(".")
    return f"{stem}.weight" if last in PACKED else None


def names(values: Iterable[str], *, limit: int = 3) -> str:
    """Return a few untrusted names on one line, with the count where there are more."""
    listed = [shown(value) for value in values]
    text = ", ".join(listed[:limit])
    return text if len(listed) <= limit else f"{text} and {len(listed) - limit} more"


_SKIP = "the drafter's class, sizes or files could not be read"
_NORMS = ("fc_norm.", "input_norm.", "aux_norm_")


def _is_norm(name: str) -> bool:
    return any(mark in name for mark in _NORMS)


def _is_bias(name: str) -> bool:
    return name.endswith(".bias")


def layer_number(name: str) -> int | None:
    """Return the layer that a tensor name belongs to, if any; ``midlayer`` is layer 0."""
    parts = name.split(".")
    if "midlayer" in parts:
        return 0
    for before, number in pairwise(parts):
        if before == "layers" and number.isascii() and number.isdigit() and len(number) < 5:
            return int(number)
    return None


def unprefixed(found: Account) -> tuple[str, str] | None:
    """Return (prefix, example) if dropping a prefix would place most of what is now unused, else None."""
    place = ARCHITECTURES[found.shape.architecture].place
    for prefix in PREFIXES:
        placed = [n for n in found.unused if n.startswith(prefix) and place(n.removeprefix(prefix), found.built)]
        if placed and 2 * len(placed) >= len(found.unused):
            return prefix, placed[0]
    return None


@check(
    "tensor.prefix",
    asks="tensor names start where the loader looks for them",
    why=f"With a prefix that the loader does not strip, none of these tensors is loaded: {_SILENT}.",
    fix="strip the prefix from the names and save again",
    follows=("config.class",),
)
def prefix(s: Subject) -> Outcome:
    """Find names under a prefix of another exporter."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    wrong = unprefixed(found)
    if wrong is None:
        return passed("known names")
    dropped, example = wrong
    return failed(f"names under {dropped!r}, such as {shown(example)}", expected=shown(example.removeprefix(dropped)))


@check(
    "tensor.missing",
    asks="every parameter that the engine builds is in the file",
    why=f"A parameter that no tensor fills keeps its random start: {_SILENT}.",
    fix="export the missing tensors under the names that SGLang's loader knows",
    follows=("config.class", "tensor.prefix", "config.layers", "tensor.fused-ignored", "config.target-as-drafter"),
)
def missing(s: Subject) -> Outcome:
    """Report all gaps but those of the head, fc and its norms, which have checks of their own."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    own = ("lm_head.weight", "model.fc.weight", "model.fc.bias")
    gaps = [gap for gap in found.missing() if gap not in own and not _is_norm(gap)]
    count = len(found.built)
    return judged(
        f"{len(gaps)} not in the file: {names(gaps)}" if gaps else "",
        expected=f"all {count} parameters",
        good=f"{count} parameters accounted for",
    )


@check(
    "tensor.shape",
    asks="every tensor has the shape that the engine builds from config.json",
    why="The load ends in a size mismatch.",
    fix="make config.json describe these weights, or export the weights of this config",
    follows=("config.class", "config.target-as-drafter", "target.hidden"),
)
def shapes(s: Subject) -> Outcome:
    """Report all shapes but those of the head, fc and the embedding, which have checks of their own."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    own = ("lm_head.weight", "model.fc.weight", "model.embed_tokens.weight")
    wrong = [
        (t, wanted) for t, wanted in found.misshapen() if not any(found.filled.get(Slot(name)) is t for name in own)
    ]
    if not wrong:
        return passed(f"{len(found.filled)} shapes fit")
    tensor, wanted = wrong[0]
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return failed(f"{shown(tensor.name)} is {list(tensor.shape)}{more}", expected=f"{list(wanted)}")


@check(
    "tensor.unused",
    asks="the engine uses every tensor of the file",
    why=f"A trained tensor that the loader drops changes what the drafter computes: {_SILENT}.",
    fix="rename it to what SGLang's loader knows, or retrain without it",
    follows=("config.class", "tensor.prefix", "config.layers", "config.layer-limit", "config.target-as-drafter"),
)
def unused(s: Subject) -> Outcome:
    """Report dropped tensors that no more telling check reports."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    explained = {name for name in found.unused if _is_norm(name) or _is_bias(name) or _fused_mla(found, name)}
    layers = {name for name in found.unused if (layer_number(name) or 0) >= found.shape.layers}
    tied = {"lm_head.weight"} if found.shape.tied else set()
    left = [n for n in found.unused if n not in explained | layers | tied and not n.endswith(HARMLESS)]
    if not left:
        return passed(f"{len(found.filled)} tensors used")
    return failed(f"{len(left)} dropped: {names(left)}", expected="no tensor dropped")


@check(
    "tensor.bias-ignored",
    asks="no bias is dropped on load",
    why="A bias whose flag is unset (or which the class never builds, as for q, k and v) is lost without a word.",
    fix="set attention_bias (o_proj) or bias (fc) in config.json; the class builds no other bias",
    culprit="drafter-config",
    follows=("tensor.prefix",),
)
def bias_ignored(s: Subject) -> Outcome:
    """Compare bias tensors with the flags."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    lost = [name for name in found.unused if _is_bias(name) and not _is_norm(name)]
    return judged(names(lost), expected="a parameter for every bias in the file", good="no bias lost")


def _fused_mla(found: Account, name: str) -> bool:
    return found.shape.architecture == MLA and "fused_qkv_a_proj_with_mqa" in name


@check(
    "tensor.fused-ignored",
    asks="an MLA drafter ships q_a_proj and kv_a_proj_with_mqa apart",
    why=f"The MLA loader fuses the two itself and drops a tensor that is fused already: {_SILENT}.",
    fix="split fused_qkv_a_proj_with_mqa by rows into q_a_proj and kv_a_proj_with_mqa",
    follows=("tensor.prefix",),
)
def fused_ignored(s: Subject) -> Outcome:
    """Know a trap of the MLA class's loader."""
    found = account(s)
    if found is None or found.shape.architecture != MLA:
        return skipped("no MLA drafter")
    lost = [name for name in found.unused if _fused_mla(found, name)]
    return judged(names(lost), expected="q_a_proj and kv_a_proj_with_mqa", good="halves apart")


CHECKS: tuple[Check, ...] = (prefix, missing, shapes, unused, bias_ignored, fused_ignored)
