"""Faults for the tests, one for each way a drafter can be wrong: how it is made, and the finding it must give.

They read every size from the checkpoint that they spoil, so that they fit the tiny drafters of the builder and the
trained ones of the mini family alike.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from pytest_specprobe.errors import Culprit
from pytest_specprobe.profiles import Speculation
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_builder import Array, Checkpoint

Edit = Callable[[Checkpoint], object]
Change = Callable[[Array], Array]


@dataclass(frozen=True)
class Mutation:
    """A fault: how it is made, and the finding it must give. ``base`` is set where only one class can have it."""

    name: str
    finding: str
    culprit: Culprit
    drafter: Edit = lambda c: None
    target: Edit = lambda c: None
    base: Callable[[], Checkpoint] | None = None
    spoil: Callable[[Path], object] = lambda path: None
    options: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path, *, drafter: Checkpoint, target: Checkpoint) -> tuple[Path, Path, dict[str, Any]]:
        """Spoil and write both; return their paths and the options for ``inspect``."""
        drafter.partner = target
        self.drafter(drafter)
        self.target(target)
        places = drafter.save(path / "drafter"), target.save(path / "target")
        self.spoil(places[0])
        options = dict(self.options)
        if "parent" in options:
            options["parent"] = path / options["parent"]
        return *places, options


def config(**changes: Any) -> Edit:
    return lambda c: c.config.update(changes)


def eagle(**changes: Any) -> Edit:
    return lambda c: c.config.setdefault("eagle_config", {}).update(changes)


def without(*keys: str) -> Edit:
    return lambda c: [c.config.pop(key) for key in keys]


def drop(*names: str) -> Edit:
    return lambda c: [c.tensors.pop(name) for name in names]


def put(name: str, value: Callable[[Checkpoint], Array]) -> Edit:
    return lambda c: c.tensors.__setitem__(name, value(c))


def change(name: str, edit: Change) -> Edit:
    return lambda c: c.tensors.__setitem__(name, edit(c.tensors[name].copy()))


def both(*edits: Edit) -> Edit:
    return lambda c: [edit(c) for edit in edits]


def remap(ids: Callable[[Checkpoint], Array]) -> Edit:
    """Give d2t and t2d another set of ids."""

    def edit(c: Checkpoint) -> None:
        c.tensors["d2t"], c.tensors["t2d"] = build.tables(ids(c), vocab=c.vocab)

    return edit


def at(index: int, value: object) -> Change:
    def edit(values: Array) -> Array:
        values[index] = value
        return values

    return edit


NO_TABLES = drop("model.embed_tokens.weight", "lm_head.weight")


def prefixed(prefix: str, *rooms: str) -> Edit:
    return lambda c: c.rename(lambda name: f"{prefix}{name}" if name.startswith(rooms) else name)


def norms(*names: str) -> Edit:
    return lambda c: c.tensors.update({f"{name}.weight": c.weights(c.hidden) for name in names})


def scaled(key: str, factor: float) -> Edit:
    """Multiply a size of the config."""
    return lambda c: c.config.__setitem__(key, int(c.config[key] * factor))


def _cut(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _directory(path: Path) -> None:
    (path / "model.safetensors").unlink()
    (path / "model.safetensors").mkdir()


def _index_elsewhere(path: Path) -> None:
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"d2t": "../model.safetensors"}}')


def _second_copy(path: Path) -> None:
    save_file({"t2d": build.load(path).tensors["t2d"]}, path / "old.safetensors")


def _become_the_target(c: Checkpoint) -> None:
    assert c.partner is not None
    c.config, c.tensors = c.partner.config, c.partner.tensors


def _fuse_mla(c: Checkpoint) -> None:
    prefix = "midlayer.self_attn"
    halves = [c.tensors.pop(f"{prefix}.{half}.weight") for half in ("q_a_proj", "kv_a_proj_with_mqa")]
    c.tensors[f"{prefix}.fused_qkv_a_proj_with_mqa.weight"] = np.concatenate(halves)


def _untrained(c: Checkpoint) -> None:
    rng = np.random.default_rng(3)
    for name, value in c.tensors.items():
        if value.dtype.kind == "f":
            fresh = np.ones(value.shape) if value.ndim == 1 else 0.02 * rng.standard_normal(value.shape)
            c.tensors[name] = fresh.astype(value.dtype)


def _other_float(values: Array) -> Array:
    """Another float type than the checkpoint's own (float32 stands for bf16 in the mini family)."""
    return values.astype(np.float32 if values.dtype == np.float16 else np.float16)


def _absolute(c: Checkpoint) -> None:
    c.tensors["d2t"] = np.flatnonzero(c.tensors["t2d"]).astype(np.int64)


def _descending(c: Checkpoint) -> None:
    ids = np.flatnonzero(c.tensors["t2d"])[::-1]
    c.tensors["d2t"] = (ids - np.arange(len(ids))).astype(np.int64)


def _beyond(c: Checkpoint) -> None:
    c.tensors["d2t"] = at(-1, c.vocab - c.draft + 1)(c.tensors["d2t"].copy())


def stops(c: Checkpoint) -> list[int]:
    """Ids that end generation of the drafter's target."""
    assert c.partner is not None
    ids = c.partner.config["eos_token_id"]
    return list(ids) if isinstance(ids, list) else [ids]


def _without_stops(c: Checkpoint) -> Array:
    free = np.setdiff1d(np.arange(c.vocab), stops(c))
    return np.sort(np.random.default_rng(4).choice(free, c.draft, replace=False))


def _odd_ids(c: Checkpoint) -> Array:
    wanted = np.array(stops(c))
    odd = np.setdiff1d(np.arange(1, c.vocab, 2), wanted)
    return np.sort(np.append(odd[: c.draft - len(wanted)], wanted))


def _any_ids(c: Checkpoint) -> Array:
    return np.sort(np.random.default_rng(99).choice(c.vocab, c.draft, replace=False))


def _other_t2d(c: Checkpoint) -> Array:
    return build.tables(_any_ids(c), vocab=c.vocab)[1]


def two_layers(c: Checkpoint) -> None:
    """A second layer under the newer names; its attention reads one hidden state, not two."""
    c.config["num_hidden_layers"] = 2
    c.rename(lambda name: name.replace("midlayer.", "layers.0."))
    for name, value in list(c.tensors.items()):
        if name.startswith("layers.0."):
            double = value.ndim == 2 and value.shape[1] == 2 * c.hidden and "self_attn" in name
            c.tensors[name.replace("layers.0.", "layers.1.")] = (value[:, : c.hidden] if double else value).copy()


def split(path: Path, *, lose: str | None = None) -> None:
    """Turn the one file into two shards with an index."""
    made = build.load(path)
    (path / "model.safetensors").unlink()
    names = sorted(made.tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        made.write(path / file, {name: made.tensors[name] for name in part if name != lose})
        weight_map |= dict.fromkeys(part, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _head_kept(path: Path) -> None:
    """Make the sibling ``parent`` a drafter with the same head over another mapping."""
    parent = build.load(path)
    remap(_any_ids)(parent)
    parent.save(path.parent / "parent")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"

MUTATIONS = [
    # files
    Mutation(
        "pickled only",
        "file.pickled",
        "drafter-file",
        spoil=lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin"),
    ),
    Mutation("no weights", "file.missing", "drafter-file", spoil=lambda p: (p / "model.safetensors").unlink()),
    Mutation(
        "lfs pointer", "file.lfs-pointer", "drafter-file", spoil=lambda p: (p / "model.safetensors").write_bytes(LFS)
    ),
    Mutation("cut", "file.truncated", "drafter-file", spoil=_cut),
    Mutation(
        "garbage",
        "file.bad-header",
        "drafter-file",
        spoil=lambda p: (p / "model.safetensors").write_bytes(b"\xff" * 4096),
    ),
    Mutation("a directory", "file.unreadable", "drafter-file", spoil=_directory),
    Mutation("no config", "file.missing", "drafter-config", spoil=lambda p: (p / "config.json").unlink()),
    Mutation(
        "config cut",
        "file.bad-json",
        "drafter-config",
        spoil=lambda p: (p / "config.json").write_text('{"architectures"'),
    ),
    Mutation("index elsewhere", "file.index-path", "drafter-file", spoil=_index_elsewhere),
    Mutation("index without shard tensor", "file.index", "drafter-file", spoil=lambda p: split(p, lose="t2d")),
    Mutation(
        "two copies",
        "file.repeated",
        "drafter-file",
        spoil=_second_copy,
    ),
    Mutation(
        "pickle beside",
        "file.pickled-beside",
        "drafter-file",
        spoil=lambda p: (p / "pytorch_model.bin").write_bytes(b"x"),
    ),
    Mutation(
        "training state",
        "file.optimizer-state",
        "drafter-file",
        spoil=lambda p: (p / "training_state.pt").write_bytes(b"x"),
    ),
    # the drafter's own code
    Mutation(
        "auto_map", "file.own-code", "drafter-config", drafter=config(auto_map={"AutoConfig": "configuration_x.Y"})
    ),
    Mutation(
        "python file", "file.own-code", "drafter-config", spoil=lambda p: (p / "modeling_x.py").write_bytes(b"")
    ),
    # config
    Mutation("EAGLE", "config.eagle-not-eagle3", "launch-flags", options={"algorithm": "EAGLE"}),
    Mutation(
        "nested",
        "config.nested",
        "drafter-config",
        both(
            config(speculators_model_type="eagle3", transformer_layer_config={}),
            without("model_type", "architectures"),
        ),
    ),
    Mutation("vLLM's class", "config.class", "drafter-config", config(architectures=["Eagle3LlamaForCausalLM"])),
    Mutation(
        "base class",
        "config.class",
        "drafter-config",
        config(architectures=["LlamaForCausalLM"]),
        target=config(architectures=["Qwen3ForCausalLM"]),
    ),
    Mutation("no class", "config.class", "drafter-config", without("architectures")),
    Mutation("no model_type", "config.model-type", "drafter-config", without("model_type")),
    Mutation("null use_cache", "config.null-field", "drafter-config", config(use_cache=None)),
    Mutation("null target width", "config.null-field", "drafter-config", config(target_hidden_size=None)),
    Mutation("no layers", "config.size-missing", "drafter-config", without("num_hidden_layers")),
    Mutation("draft vocab 0", "config.draft-vocab-size", "drafter-config", config(draft_vocab_size=0)),
    Mutation("draft vocab -1", "config.draft-vocab-size", "drafter-config", config(draft_vocab_size=-1)),
    Mutation("40 layers", "config.layers", "drafter-config", config(num_hidden_layers=40)),
    Mutation("one layer of two", "config.layers", "drafter-config", both(two_layers, config(num_hidden_layers=1))),
    Mutation(
        "two MLA layers",
        "config.layer-limit",
        "engine",
        both(config(num_hidden_layers=2), norms("layers.1.hidden_norm")),
        base=build.mla,
    ),
    Mutation(
        "old engine",
        "config.engine-version",
        "engine",
        lambda c: c.rename(lambda n: n.replace("midlayer.", "layers.0.")),
        options={"engine_version": "0.5.11"},
    ),
    Mutation("gelu", "config.activation", "drafter-config", config(hidden_act="gelu")),
    Mutation("the target as drafter", "config.target-as-drafter", "launch-flags", _become_the_target),
    Mutation(
        "a tree",
        "config.topk",
        "launch-flags",
        options={"speculation": Speculation(num_steps=3, eagle_topk=4, num_draft_tokens=12)},
    ),
    # target
    Mutation("another width", "target.hidden", "drafter-config", target=both(scaled("hidden_size", 2), NO_TABLES)),
    Mutation(
        "another vocabulary", "target.vocab", "drafter-config", target=both(scaled("vocab_size", 0.5), NO_TABLES)
    ),
    Mutation(
        "another name",
        "target.name",
        "drafter-file",
        config(base_model="org/Some-70B"),
    ),
    Mutation(
        "quantised target",
        "target.quantized",
        "launch-flags",
        target=config(quantization_config={"quant_method": "fp8"}),
    ),
    Mutation(
        "packed embedding",
        "target.packed-embedding",
        "target",
        target=put("model.embed_tokens.weight", lambda c: np.zeros((c.vocab, c.hidden), dtype=np.uint8)),
    ),
    Mutation("bf16 target", "target.dtype", "drafter-file", target=config(torch_dtype="float32")),
    Mutation("target without class", "target.class", "target", target=without("architectures")),
    # tensors
    Mutation("prefix", "tensor.prefix", "drafter-file", prefixed("module.", "midlayer", "fc", "norm", "lm_head")),
    Mutation(
        "MLA under model.",
        "tensor.prefix",
        "drafter-file",
        prefixed("model.", "midlayer", "fc", "norm"),
        base=build.mla,
    ),
    Mutation("no o_proj", "tensor.missing", "drafter-file", drop("midlayer.self_attn.o_proj.weight")),
    Mutation("no k_proj", "tensor.missing", "drafter-file", drop("midlayer.self_attn.k_proj.weight")),
    Mutation("no final norm", "tensor.missing", "drafter-file", drop("norm.weight")),
    Mutation(
        "own embedding needed",
        "tensor.missing",
        "drafter-file",
        both(
            lambda c: c.config.update(target_hidden_size=2 * c.hidden), change("fc.weight", lambda v: np.tile(v, 2))
        ),
        target=both(scaled("hidden_size", 2), NO_TABLES),
    ),
    Mutation(
        "narrow down_proj",
        "tensor.shape",
        "drafter-file",
        change("midlayer.mlp.down_proj.weight", lambda v: v[:, :-8]),
    ),
    Mutation(
        "single width q_proj",
        "tensor.shape",
        "drafter-file",
        change("midlayer.self_attn.q_proj.weight", lambda v: v[:, : v.shape[1] // 2]),
    ),
    Mutation(
        "extra matrix",
        "tensor.unused",
        "drafter-file",
        put("midlayer.extra_proj.weight", lambda c: c.weights(c.hidden, c.hidden)),
    ),
    Mutation(
        "q bias",
        "tensor.bias-ignored",
        "drafter-config",
        put("midlayer.self_attn.q_proj.bias", lambda c: c.weights(c.hidden)),
    ),
    Mutation("fc bias", "tensor.bias-ignored", "drafter-config", put("fc.bias", lambda c: c.weights(c.hidden))),
    Mutation("fused MLA", "tensor.fused-ignored", "drafter-file", _fuse_mla, base=build.mla),
    Mutation("NaN", "tensor.not-finite", "drafter-file", change("midlayer.mlp.up_proj.weight", at(3, np.nan))),
    Mutation("blind fc", "tensor.constant", "drafter-file", change("fc.weight", np.zeros_like)),
    Mutation("random weights", "tensor.untrained", "drafter-file", _untrained),
    Mutation(
        "one float32 matrix",
        "tensor.dtype",
        "drafter-file",
        change("midlayer.mlp.up_proj.weight", _other_float),
    ),
    # head
    Mutation("no draft_vocab_size", "head.key-missing", "drafter-config", without("draft_vocab_size")),
    Mutation("no head", "head.missing", "drafter-file", drop("lm_head.weight")),
    Mutation(
        "wrong count",
        "head.draft-vocab-size",
        "drafter-config",
        lambda c: c.config.update(draft_vocab_size=c.draft - 1),
    ),
    Mutation("full head", "head.rows", "drafter-file", put("lm_head.weight", lambda c: c.weights(c.vocab, c.hidden))),
    Mutation("tied", "head.tied", "drafter-config", config(tie_word_embeddings=True)),
    Mutation("null draft_vocab_size", "head.borrowed-but-mapped", "drafter-config", config(draft_vocab_size=None)),
    Mutation(
        "short embedding",
        "head.embedding-rows",
        "drafter-file",
        put("embed_tokens.weight", lambda c: c.weights(c.vocab - 1, c.hidden)),
    ),
    Mutation(
        "random embedding",
        "head.embedding-differs",
        "drafter-file",
        put("embed_tokens.weight", lambda c: c.weights(c.vocab, c.hidden)),
    ),
    # fc and auxiliary layers
    Mutation("no fc", "fc.missing", "drafter-file", drop("fc.weight")),
    Mutation(
        "four blocks",
        "fc.width",
        "drafter-config",
        change("fc.weight", lambda v: np.concatenate([v, v[:, : len(v)]], axis=1)),
    ),
    Mutation("odd width", "fc.width", "drafter-file", change("fc.weight", lambda v: v[:, :-8])),
    Mutation("norm flag without norms", "fc.norm-missing", "drafter-file", config(fc_norm=True)),
    Mutation("norms without flag", "fc.norm-ignored", "drafter-config", norms("fc_norm.0", "fc_norm.1", "fc_norm.2")),
    Mutation(
        "legacy norms without flag",
        "fc.norm-ignored",
        "drafter-config",
        norms("aux_norm_low", "aux_norm_mid", "aux_norm_high"),
    ),
    Mutation(
        "norm_before_fc on MLA", "fc.norm-unsupported", "drafter-config", config(norm_before_fc=True), base=build.mla
    ),
    Mutation("no ids", "fc.aux-absent", "drafter-config", config(eagle_config={})),
    Mutation(
        "ids outside",
        "fc.aux-misplaced",
        "drafter-config",
        both(config(eagle_config={}), config(eagle_aux_hidden_state_layer_ids=[0, 2, 6])),
    ),
    Mutation("empty ids", "fc.aux-empty", "drafter-config", eagle(eagle_aux_hidden_state_layer_ids=[])),
    Mutation(
        "twice the same layer",
        "fc.aux-duplicate",
        "drafter-config",
        eagle(eagle_aux_hidden_state_layer_ids=[1, 3, 3]),
    ),
    Mutation("descending ids", "fc.aux-order", "drafter-config", eagle(eagle_aux_hidden_state_layer_ids=[4, 3, 1])),
    Mutation(
        "another target's ids", "fc.aux-range", "drafter-config", eagle(eagle_aux_hidden_state_layer_ids=[2, 30, 58])
    ),
    Mutation(
        "the last layer's output", "fc.aux-range", "drafter-config", eagle(eagle_aux_hidden_state_layer_ids=[1, 3, 7])
    ),
    Mutation(
        "few layers",
        "fc.aux-few-layers",
        "target",
        eagle(eagle_aux_hidden_state_layer_ids=None),
        target=config(num_hidden_layers=6),
    ),
    Mutation("no auxiliary states", "fc.aux-off", "drafter-config", eagle(use_aux_hidden_state=False)),
    # positions
    Mutation(
        "endless RoPE factor",
        "rope.factor",
        "drafter-config",
        config(rope_scaling={"rope_type": "linear", "factor": float("inf")}),
    ),
    Mutation(
        "RoPE factor of nothing",
        "rope.factor",
        "drafter-config",
        config(rope_scaling={"rope_type": "linear", "factor": 1e-320}),
    ),
    Mutation(
        "target's endless RoPE factor",
        "rope.factor",
        "target",
        target=config(rope_scaling={"rope_type": "linear", "factor": float("inf")}),
    ),
    Mutation("half the positions", "rope.positions", "drafter-config", scaled("max_position_embeddings", 0.5)),
    Mutation("longer serving", "rope.positions", "drafter-config", options={"serving_context": 8192}),
    Mutation("no positions", "rope.positions-missing", "drafter-config", without("max_position_embeddings")),
    Mutation(
        "two spellings",
        "rope.spellings",
        "drafter-config",
        lambda c: c.config.update(rope_parameters={"rope_theta": c.config["rope_theta"]}, rope_theta=1e7),
    ),
    Mutation("theta lost", "rope.theta", "drafter-config", without("rope_theta"), target=config(rope_theta=1e6)),
    Mutation(
        "scaling lost",
        "rope.scaling",
        "drafter-config",
        target=config(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}),
    ),
    # mapping
    Mutation("no d2t", "vocab.missing", "drafter-file", drop("d2t", "t2d")),
    Mutation("float d2t", "vocab.d2t-dtype", "drafter-file", change("d2t", lambda v: v.astype(np.float32))),
    Mutation("flat d2t", "vocab.d2t-dtype", "drafter-file", change("d2t", lambda v: v[None])),
    Mutation("short d2t", "vocab.d2t-length", "drafter-file", change("d2t", lambda v: v[:-1])),
    Mutation("absolute ids", "vocab.absolute-ids", "drafter-file", _absolute),
    Mutation("absolute ids, no witness", "vocab.absolute-ids", "drafter-file", both(_absolute, drop("t2d"))),
    Mutation(
        "arange", "vocab.absolute-ids", "drafter-file", both(put("d2t", lambda c: np.arange(c.draft)), drop("t2d"))
    ),
    Mutation("untouched zeros", "vocab.untouched", "drafter-file", change("d2t", np.zeros_like)),
    Mutation(
        "untouched, t2d ones",
        "vocab.untouched",
        "drafter-file",
        both(change("d2t", np.zeros_like), change("t2d", np.ones_like)),
    ),
    Mutation(
        "untouched, t2d zeros",
        "vocab.untouched",
        "drafter-file",
        both(change("d2t", np.zeros_like), change("t2d", np.zeros_like)),
    ),
    Mutation("the first ids", "vocab.first-ids", "drafter-file", remap(lambda c: np.arange(c.draft))),
    Mutation(
        "beyond the vocabulary",
        "vocab.range",
        "drafter-file",
        both(_beyond, drop("t2d")),
    ),
    Mutation("negative id", "vocab.range", "drafter-file", both(change("d2t", at(0, -1)), drop("t2d"))),
    Mutation(
        "one id twice",
        "vocab.duplicate",
        "drafter-file",
        both(change("d2t", lambda v: at(5, v[4] - 1)(v)), drop("t2d")),
    ),
    Mutation("descending", "vocab.order", "drafter-file", _descending),
    Mutation("no t2d", "vocab.t2d-missing", "drafter-file", drop("t2d")),
    Mutation("t2d as bytes", "vocab.t2d-dtype", "drafter-file", change("t2d", lambda v: v.astype(np.uint8))),
    Mutation("short t2d", "vocab.t2d-length", "drafter-file", change("t2d", lambda v: v[:-1])),
    Mutation(
        "an extra mark",
        "vocab.t2d-count",
        "drafter-file",
        change("t2d", lambda v: at(int(np.flatnonzero(~v)[0]), True)(v)),
    ),
    Mutation(
        "another run's t2d",
        "vocab.t2d-disagrees",
        "drafter-file",
        put("t2d", _other_t2d),
    ),
    Mutation("no stop id", "vocab.stop-ids", "drafter-file", remap(_without_stops)),
    Mutation(
        "foreign text",
        "vocab.coverage",
        "workload",
        remap(_odd_ids),
        options={"sample_ids": [8, 10, 12, 14, 1]},
    ),
    Mutation("head kept", "vocab.rebuilt-under-head", "drafter-file", spoil=_head_kept, options={"parent": "parent"}),
]
