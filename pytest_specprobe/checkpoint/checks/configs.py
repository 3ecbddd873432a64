"""The drafter's ``config.json`` itself: class, nesting, fields, counts, and the launch flags that must match it."""

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.accounting import account, layer_number, names
from pytest_specprobe.checkpoint.engine.architectures import ARCHITECTURES
from pytest_specprobe.checkpoint.engine.shape import (
    LLAMA,
    MLA,
    architecture_of,
    is_size,
    required_sizes,
    shape_of,
    unusable_options,
    unusable_sizes,
)
from pytest_specprobe.checkpoint.engine.versions import needed_version, parse_version, shown_version
from pytest_specprobe.checkpoint.files.header import shown
from pytest_specprobe.checkpoint.vocab_mapping import find

# Class names of other engines for the same kind of drafter, and what to do about each.
FOREIGN_CLASSES = {
    "Eagle3LlamaForCausalLM": f"vLLM's and llama.cpp's name: write {LLAMA} into architectures",
    "Eagle3Speculator": "a speculators export: convert it with speculators' SGLang converter first",
    "Eagle3DraftModel": "a speculators export: convert it with speculators' SGLang converter first",
    "EagleLlamaForCausalLM": "vLLM's EAGLE-1/2 name; an EAGLE-3 drafter needs " + LLAMA,
    "LlamaForCausalLMEagle": f"SGLang's EAGLE-1/2 class; an EAGLE-3 drafter needs {LLAMA}",
}
# Fields that the config classes type strictly: null there ends the boot.
STRICT = (
    "hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "use_cache", "tie_word_embeddings", "attention_bias",
    "mlp_bias", "initializer_range",
)  # fmt: skip


@check(
    "config.eagle-not-eagle3",
    culprit="launch-flags",
    asks="an EAGLE-3 drafter is launched with --speculative-algorithm EAGLE3",
    why="Under EAGLE the target captures no auxiliary layers and fc is skipped where the widths agree: accept length "
    "exactly 1.00, no error.",
    fix="launch with --speculative-algorithm EAGLE3",
)
def eagle_not_eagle3(s: Subject) -> Outcome:
    """Fc and d2t are the marks of EAGLE-3."""
    if s.algorithm == "EAGLE3":
        return passed("EAGLE3")
    marks = [name for name in ("fc.weight", "d2t") if s.weights and any(k.endswith(name) for k in s.weights.tensors)]
    if not marks and architecture_of(s.config) not in ARCHITECTURES:
        return skipped("no EAGLE-3 drafter")
    return failed(
        f"{shown(s.algorithm)} with a drafter that has {names(marks) or 'an EAGLE-3 class'}", expected="EAGLE3"
    )


@check(
    "config.nested",
    culprit="drafter-config",
    asks="config.json is flat, as SGLang reads it",
    why="A speculators config keeps the sizes in a nested table: 'Unrecognized model', or with a model_type added by "
    "hand a boot with default sizes.",
    fix="convert the drafter with speculators' SGLang converter; do not add model_type by hand",
)
def nested(s: Subject) -> Outcome:
    """Nested tables of speculators."""
    if not s.config:
        return skipped("no config.json")
    marks = [key for key in s.config if key == "transformer_layer_config" or key.startswith("speculators_")]
    return judged(names(marks), expected="flat keys", good="flat")


@check(
    "config.class",
    culprit="drafter-config",
    asks="architectures names a class that SGLang loads as an EAGLE-3 drafter",
    why="With a base class or another engine's name the wrong loader takes the file: a crash, or layers left random.",
    fix=f"write {LLAMA} (or {MLA} for an MLA drafter) into architectures",
    follows=("config.nested", "config.target-as-drafter"),
)
def class_name(s: Subject) -> Outcome:
    """Known names, with their engine."""
    if not s.config:
        return skipped("no config.json")
    name = architecture_of(s.config)
    if name is not None and name in ARCHITECTURES:
        return passed(name)
    hint = FOREIGN_CLASSES.get(name or "")
    return failed(shown(name or "no architectures"), expected=f"{LLAMA} or {MLA}", fix=hint)


@check(
    "config.model-type",
    culprit="drafter-config",
    asks="config.json has a model_type",
    why="Without it the config is not recognised and the boot ends.",
    fix='add "model_type": "llama" (for an MLA drafter the type of its target\'s text model)',
    follows=("config.nested",),
)
def model_type(s: Subject) -> Outcome:
    """Presence only: which types exist is the engine's business."""
    if not s.config:
        return skipped("no config.json")
    value = s.config.get("model_type")
    if isinstance(value, str) and value:
        return passed(shown(value))
    return failed("no model_type", expected="llama, or the type of an MLA config")


@check(
    "config.null-field",
    culprit="drafter-config",
    asks="fields that the config class types are not null",
    why="Strict configs refuse null there and the boot ends.",
    fix="remove the field (its default then applies) or give it a value",
    follows=("config.nested",),
)
def null_field(s: Subject) -> Outcome:
    """Null where a value is expected; an absent field is another matter."""
    if not s.config:
        return skipped("no config.json")
    nulls = [key for key in STRICT if key in s.config and s.config[key] is None]
    # The Llama class reads this one with hasattr and multiplies it.
    if architecture_of(s.config) == LLAMA and s.config.get("target_hidden_size", 0) is None:
        nulls.append("target_hidden_size")
    return judged(f"null: {names(nulls)}" if nulls else "", expected="values", good="no null where a value is needed")


@check(
    "config.size-missing",
    culprit="drafter-config",
    asks="the sizes are positive whole numbers",
    why="An absent size silently becomes Llama-2-7B's (4,096 wide, 32 layers); a wrong one ends the boot.",
    fix="restore the sizes from the training run's config",
    follows=("config.nested", "config.null-field", "config.class"),
)
def size_missing(s: Subject) -> Outcome:
    """Sizes that are absent, zero, negative or no integers."""
    if not s.config:
        return skipped("no config.json")
    bad = [*unusable_sizes(s.config), *unusable_options(s.config)]
    return judged(
        names(f"{key} {shown(s.config.get(key, 'absent'), limit=20)}" for key in bad),
        expected="positive integers of a plausible size",
        good=f"{len(required_sizes(s.config))} sizes",
    )


@check(
    "config.draft-vocab-size",
    culprit="drafter-config",
    asks="0 < draft_vocab_size <= vocab_size",
    why="The config is accepted and the head is nonsense, or the boot crashes.",
    fix="set draft_vocab_size to the rows of lm_head, or to null to borrow the target's head",
    follows=("head.draft-vocab-size",),
)
def draft_vocab_size(s: Subject) -> Outcome:
    """Accept a count within the vocabulary, or null."""
    if not s.config:
        return skipped("no config.json")
    value, vocab = s.config.get("draft_vocab_size"), s.config.get("vocab_size")
    if value is None:
        return passed("null: the target's head")
    if is_size("draft_vocab_size", value) and (not is_size("vocab_size", vocab) or value <= vocab):
        return passed(f"{value:,}")
    return failed(f"draft_vocab_size {shown(value, limit=20)}", expected=f"1 to {shown(vocab, limit=20)}, or null")


@check(
    "config.layers",
    culprit="drafter-config",
    asks="num_hidden_layers is the number of layers in the file",
    why="Layers beyond the file stay random, layers beyond the number are dropped; one published head said 40.",
    fix="set num_hidden_layers to the layers in the file",
    follows=("config.class", "config.target-as-drafter", "tensor.prefix"),
)
def layers(s: Subject) -> Outcome:
    """Layer numbers in the names against the config."""
    found = account(s)
    if found is None or s.weights is None:
        return skipped("the drafter's class, sizes or files could not be read")
    numbers = {layer_number(name) for name in s.weights.tensors} - {None}
    if not numbers:
        return skipped("no layer in the file")
    held = len(numbers)
    if held == found.shape.layers:
        return passed(f"{held}")
    return failed(f"num_hidden_layers {found.shape.layers}", expected=f"{held}, as the file has")


@check(
    "config.layer-limit",
    culprit="engine",
    asks="the class builds as many layers as the drafter has",
    why="The MLA class (and older Llama ones) refuses more than one layer at boot.",
    fix="use a one-layer drafter, or the Llama class of a recent SGLang",
    follows=("config.layers",),
)
def layer_limit(s: Subject) -> Outcome:
    """One layer for the MLA class."""
    shape = shape_of(s.config)
    if shape is None:
        return skipped("the drafter's class or sizes could not be read")
    if shape.architecture == MLA and shape.layers != 1:
        return failed(f"{shape.layers} layers", expected="1 layer")
    return passed(f"{shape.layers}")


@check(
    "config.engine-version",
    culprit="engine",
    asks="the SGLang that will serve it is new enough to read all of the drafter",
    why="An older loader drops what it does not know without a word: accept length 1.",
    fix="serve with a newer SGLang",
)
def engine_version(s: Subject) -> Outcome:
    """State the version that the drafter needs; judge it where the engine's is known."""
    shape = shape_of(s.config)
    if shape is None or s.weights is None:
        return skipped("the drafter's class, sizes or files could not be read")
    needed, feature = needed_version(shape, s.weights, norm_output=bool(s.config.get("norm_output")))
    engine = parse_version(s.engine_version) if s.engine_version else None
    text = f"needs SGLang {shown_version(needed)} or newer ({feature})"
    if engine is None or engine >= needed:
        return passed(text)
    return failed(f"SGLang {shown_version(engine)}", expected=text)


@check(
    "config.activation",
    culprit="drafter-config",
    asks="hidden_act is silu",
    why="The classes refuse any other activation at boot.",
    fix="use a drafter with silu",
)
def activation(s: Subject) -> Outcome:
    """Accept the one activation that both classes know."""
    if architecture_of(s.config) not in ARCHITECTURES:
        return skipped("unknown class")
    value = s.config.get("hidden_act", "silu")
    if value in ("silu", None):
        return passed("silu")
    return failed(shown(value), expected="silu")


@check(
    "config.target-as-drafter",
    culprit="launch-flags",
    asks="the drafter is not the target",
    why="Without a draft path the target itself is loaded as the draft: a crash, or out of memory at boot.",
    fix="pass the drafter's own directory",
)
def target_as_drafter(s: Subject) -> Outcome:
    """Compare the directories and the classes."""
    if s.target is None:
        return skipped("no target given")
    same = s.path.exists() and s.target.path.exists() and s.path.samefile(s.target.path)
    name = architecture_of(s.config)
    if same or (
        name is not None
        and name not in ARCHITECTURES
        and name == s.target.architecture
        and not find(s.weights, "d2t")
    ):
        return failed(shown(s.path.name if same else name), expected="a drafter")
    return passed("another directory and class")


@check(
    "config.topk",
    severity="warning",
    culprit="launch-flags",
    asks="drafts are chains (eagle_topk 1)",
    why="Trees were broken or refused in several SGLang versions and attention backends, and small ones accept less "
    "than the chain (136 of 176 comparisons).",
    fix="use eagle_topk 1, or check the output text and give the tree many more tokens than steps",
)
def topk(s: Subject) -> Outcome:
    """Needs the speculation settings."""
    if s.speculation is None:
        return skipped("no speculation settings given")
    value = s.speculation.eagle_topk
    return passed("a chain") if value == 1 else failed(f"eagle_topk {value}", expected="1")


CHECKS: tuple[Check, ...] = (
    eagle_not_eagle3, nested, class_name, model_type, null_field, size_missing, draft_vocab_size, layers, layer_limit,
    engine_version, activation, target_as_drafter, topk,
)  # fmt: skip
