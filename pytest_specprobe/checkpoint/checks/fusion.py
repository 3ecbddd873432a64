"""How the target's hidden states enter the drafter: ``fc`` and the norms around it."""

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.accounting import account, names
from pytest_specprobe.checkpoint.engine.architectures import Slot
from pytest_specprobe.checkpoint.engine.shape import LLAMA, architecture_of, eagle_config

_SKIP = "the drafter's class, sizes or files could not be read"


@check(
    "fc.missing",
    asks="fc.weight, which takes the target's hidden states, is in the file",
    why="A random fc feeds the drafter noise instead of the target's hidden states: accept length about 1.",
    fix="export fc.weight [hidden_size, layers * target_hidden_size]",
    follows=("tensor.prefix", "config.class", "config.target-as-drafter"),
)
def fc_missing(s: Subject) -> Outcome:
    """Fc and, where the flag is set, its bias."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    gaps = [name for name in found.missing() if name in ("model.fc.weight", "model.fc.bias")]
    if gaps:
        return failed(f"missing: {names(gaps)}", expected="fc in the file")
    return passed("fc is there" if found.shape.use_aux else "not needed without auxiliary states")


@check(
    "fc.width",
    asks="fc takes as many layers as the target captures",
    why="The first forward pass ends in a matrix shape error (4096x16384 against 4096x12288 in one report).",
    culprit="drafter-config",
    fix="list one auxiliary layer id for each block of fc",
    follows=("config.class", "target.hidden", "fc.aux-empty", "config.target-as-drafter"),
)
def fc_width(s: Subject) -> Outcome:
    """fc.in == captured layers * target_hidden_size."""
    found = account(s)
    tensor = found.filled.get(Slot("model.fc.weight")) if found else None
    if found is None or tensor is None:
        return skipped("no fc in the file")
    shape = found.shape
    wanted = (shape.hidden, shape.aux * shape.target_hidden)
    if tensor.shape == wanted:
        return passed(f"{shape.aux} layers of {shape.target_hidden:,}")
    if len(tensor.shape) == 2 and tensor.shape[0] == shape.hidden and tensor.shape[1] % shape.target_hidden == 0:
        blocks = tensor.shape[1] // shape.target_hidden
        return failed(f"fc takes {blocks} layers", expected=f"{shape.aux}, as config.json says")
    return failed(
        f"{list(tensor.shape)}",
        expected=f"{list(wanted)}, {shape.aux} layers of {shape.target_hidden:,}",
        culprit="drafter-file",
    )


@check(
    "fc.norm-missing",
    asks="a norm that a flag switches on is in the file",
    why="The engine builds the norm with weights of one: trained scales are lost and acceptance falls.",
    fix="export the norm's weights, or unset the flag if the drafter was trained without it",
    follows=("tensor.prefix",),
)
def norm_missing(s: Subject) -> Outcome:
    """Flag without tensor."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    gaps = [name for name in found.missing() if ".fc_norm." in name or ".input_norm." in name]
    return judged(
        f"missing: {names(gaps)}" if gaps else "", expected="a tensor for every norm switched on", good="norms fit"
    )


@check(
    "fc.norm-ignored",
    culprit="drafter-config",
    asks="a norm in the file is switched on by its flag",
    why="The norm is dropped on load: accept length 1.1, and 2.68 once it was applied.",
    fix="set fc_norm (or norm_before_fc for input_norm) to true in config.json",
    follows=("tensor.prefix",),
)
def norm_ignored(s: Subject) -> Outcome:
    """Tensor without flag."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    lost = [n for n in found.unused if any(mark in n for mark in ("fc_norm.", "input_norm.", "aux_norm_"))]
    return judged(
        f"dropped: {names(lost)}" if lost else "", expected="fc_norm or norm_before_fc true", good="no norm lost"
    )


@check(
    "fc.norm-unsupported",
    culprit="drafter-config",
    asks="norm flags are ones that this class reads",
    why="The MLA class has no norm_before_fc: the flag has no effect and the norm is never applied.",
    fix="use the Llama class, or retrain with fc_norm",
    follows=("fc.norm-ignored",),
)
def norm_unsupported(s: Subject) -> Outcome:
    """norm_before_fc on the MLA class."""
    if architecture_of(s.config) in (None, LLAMA):
        return skipped("not an MLA drafter")
    set_here = eagle_config(s.config).get("norm_before_fc", s.config.get("norm_before_fc"))
    return judged("norm_before_fc true" if set_here else "", expected="fc_norm", good="no such flag")


CHECKS: tuple[Check, ...] = (fc_missing, fc_width, norm_missing, norm_ignored, norm_unsupported)
