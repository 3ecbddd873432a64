"""Which layers of the target feed the drafter: the ids in its config, and what the engine makes of them."""

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.capture import captured_layers, default_layers, is_deepseek, last_layer
from pytest_specprobe.checkpoint.engine.shape import DEFAULT_AUX, aux_ids, eagle_config, shape_of
from pytest_specprobe.checkpoint.files.header import shown

_SKIP = "the drafter's class, sizes or files could not be read"
_KEY = "eagle_aux_hidden_state_layer_ids"


def _usable_ids(s: Subject) -> list[int] | None:
    """Return the explicit ids if they are a non-empty list of integers."""
    ids = aux_ids(s.config)
    return ids if ids and all(type(i) is int for i in ids) else None


def _layers(s: Subject) -> int | None:
    return s.target.size("num_hidden_layers") if s.target else None


def _uses_aux(s: Subject) -> bool:
    return bool(eagle_config(s.config).get("use_aux_hidden_state", True))


@check(
    "fc.aux-absent",
    severity="info",
    culprit="drafter-config",
    asks="config.json names the target layers that the drafter was trained on",
    why="The engine takes its default rule, which SpecForge trains for; for a drafter of another trainer guessed "
    "layers gave accept length 1.036, its own ones 2.77.",
    fix=f"write {_KEY} into eagle_config if the training layers are known",
    follows=("fc.aux-misplaced",),
)
def aux_absent(s: Subject) -> Outcome:
    """Print the ids that the default rule gives."""
    if shape_of(s.config) is None or not _uses_aux(s):
        return skipped("no auxiliary states in use")
    if _KEY in eagle_config(s.config):
        return passed(f"{aux_ids(s.config)}")
    layers = _layers(s)
    rule = f"{default_layers(layers)}" if layers else "[2, n // 2, n - 3]"
    return failed(f"no ids; SGLang will capture before layers {rule}", expected=f"eagle_config.{_KEY}")


@check(
    "fc.aux-misplaced",
    culprit="drafter-config",
    asks="auxiliary layer ids are inside eagle_config",
    why="SGLang's target reads them only there and captures its default layers otherwise: accept length 1.00 where "
    "the drafter's own layers gave 2.39 (an engine that ignored them).",
    fix=f'write them as "eagle_config": {{"{_KEY}": [...]}}',
    follows=("config.nested",),
)
def aux_misplaced(s: Subject) -> Outcome:
    """Ids at the top level only."""
    outside = s.config.get(_KEY)
    if outside is None:
        return passed("none outside eagle_config")
    layers = _layers(s)
    if aux_ids(s.config) == outside or (layers and _same_as_default(s, outside, layers)):
        return passed("the same as those in use")
    if layers is None and isinstance(outside, list) and len(outside) == DEFAULT_AUX:
        return skipped("no target: the default rule may well give the same layers")
    return failed(f"{_KEY} at the top level of config.json", expected="inside eagle_config")


def _same_as_default(s: Subject, ids: object, layers: int) -> bool:
    """Whether the ignored ids are the ones the default rule captures anyway."""
    if aux_ids(s.config) is not None or not isinstance(ids, list) or not all(type(i) is int for i in ids):
        return False
    architecture = s.target.architecture if s.target else None
    return captured_layers(ids, architecture=architecture, layers=layers) == default_layers(layers)


@check(
    "fc.aux-empty",
    culprit="drafter-config",
    asks="auxiliary layer ids are absent or a list of layers",
    why="An empty list captures nothing while fc waits for three layers: a shape error at the first forward pass.",
    fix=f"remove {_KEY} to use the default rule, or list the layers",
)
def aux_empty(s: Subject) -> Outcome:
    """Empty, null or no list: not the same as absent."""
    eagle = eagle_config(s.config)
    if _KEY not in eagle or not _uses_aux(s):
        return skipped("no ids in use")
    if eagle[_KEY] is None or _usable_ids(s):
        return passed(f"{eagle[_KEY]}")
    return failed(f"{_KEY} {eagle[_KEY]!r}"[:120], expected="a list of layer numbers")


@check(
    "fc.aux-duplicate",
    culprit="drafter-config",
    asks="auxiliary layer ids are different layers",
    why="A layer is captured once, so fc gets fewer blocks than it was built for: a shape error.",
    fix="list each layer once",
)
def aux_duplicate(s: Subject) -> Outcome:
    """Compare ids with their set."""
    ids = _usable_ids(s)
    if ids is None:
        return skipped("no ids in use")
    return passed(f"{ids}") if len(set(ids)) == len(ids) else failed(f"{ids}", expected="different layers")


@check(
    "fc.aux-order",
    severity="warning",
    culprit="drafter-config",
    asks="auxiliary layer ids ascend",
    why="The engine joins captured layers in ascending order whatever the list says: fc gets them swapped.",
    fix="list ascending ids, and reorder the blocks of fc with them",
)
def aux_order(s: Subject) -> Outcome:
    """Sorted ids."""
    ids = _usable_ids(s)
    if ids is None:
        return skipped("no ids in use")
    return passed(f"{ids}") if ids == sorted(ids) else failed(f"{ids}", expected=f"{sorted(ids)}")


@check(
    "fc.aux-range",
    culprit="drafter-config",
    asks="every auxiliary layer exists in the target",
    why="A layer that does not exist is never captured: fc gets fewer blocks than it was built for.",
    fix="use the layer ids of this target",
    follows=("fc.aux-duplicate",),
)
def aux_range(s: Subject) -> Outcome:
    """Ids as this target class reads them, inside its layers."""
    ids, layers = _usable_ids(s), _layers(s)
    if ids is None:
        return skipped("no ids in use")
    if layers is None:
        bad = [i for i in ids if i < 0]
        return failed(f"{ids}", expected="no negative layer") if bad else passed(f"{ids}, target's layers unknown")
    architecture = s.target.architecture if s.target else None
    taken = captured_layers(ids, architecture=architecture, layers=layers)
    last = last_layer(architecture, layers=layers)
    wrong = [i for i, layer in zip(ids, taken, strict=True) if not 0 <= layer <= last]
    return judged(
        f"{wrong} of {ids}" if wrong else "",
        expected=f"layers that a target of {layers} captures",
        good=f"{ids} of {layers} layers",
    )


@check(
    "fc.aux-few-layers",
    culprit="target",
    asks="the default rule gives three different layers of this target",
    why="For fewer than seven layers [2, n // 2, n - 3] repeats itself or leaves the model: a shape error at boot.",
    fix="give the drafter explicit auxiliary layer ids, or use a target of at least seven layers",
)
def aux_few_layers(s: Subject) -> Outcome:
    """Few-layer targets under the default rule."""
    layers = _layers(s)
    if layers is None or shape_of(s.config) is None or aux_ids(s.config) is not None or not _uses_aux(s):
        return skipped("the default rule is not in use, or the target's layers are unknown")
    ids = default_layers(layers)
    good = len(set(ids)) == len(ids) and all(0 <= i < layers for i in ids)
    return passed(f"{ids}") if good else failed(f"{ids} of {layers} layers", expected="three different layers")


@check(
    "fc.aux-capture",
    severity="info",
    culprit="target",
    asks="it is known which layers this target class captures",
    why="Ids mean 'output of layer i' to most classes and 'input of layer i' to DeepSeek-type ones: off by one costs "
    "about 0.1 of accept length, and in one report first-position acceptance (10 % instead of 45 %).",
    fix="compare with the layers used in training",
    follows=("target.class",),
)
def aux_capture(s: Subject) -> Outcome:
    """State the layers, for explicit ids and for the default rule."""
    layers = _layers(s)
    if layers is None or s.target is None or shape_of(s.config) is None or not _uses_aux(s):
        return skipped("no target, or no auxiliary states in use")
    ids = _usable_ids(s)
    if ids is None:
        return passed(f"captures before layers {default_layers(layers)} (default rule)")
    if s.target.architecture is None:
        return failed(f"{ids}, read by an unknown class", expected="a target config with architectures")
    taken = captured_layers(ids, architecture=s.target.architecture, layers=layers)
    older = " (SGLang 0.5.12: one later)" if is_deepseek(s.target.architecture) and ids[0] != 1 else ""
    return passed(f"{shown(s.target.architecture)} captures before layers {taken}{older} for ids {ids}")


@check(
    "fc.aux-off",
    severity="info",
    culprit="drafter-config",
    asks="the drafter reads several layers of the target",
    why="use_aux_hidden_state false feeds it the last hidden state only; fc is then not used.",
    fix="nothing, if the drafter was trained that way (gpt-oss Eagle3-v2 was)",
)
def aux_off(s: Subject) -> Outcome:
    """Flag off."""
    if shape_of(s.config) is None:
        return skipped(_SKIP)
    return (
        passed("auxiliary states in use") if _uses_aux(s) else failed("use_aux_hidden_state false", expected="true")
    )


CHECKS: tuple[Check, ...] = (
    aux_absent, aux_misplaced, aux_empty, aux_duplicate, aux_order, aux_range, aux_few_layers, aux_capture, aux_off,
)  # fmt: skip
