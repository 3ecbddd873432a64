"""The draft head and the embedding: whose they are, how many rows, and what ``tie_word_embeddings`` does to them."""

import numpy as np

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, passed, skipped
from pytest_specprobe.checkpoint.checks.lineage import head_of
from pytest_specprobe.checkpoint.engine.accounting import account
from pytest_specprobe.checkpoint.engine.architectures import Slot
from pytest_specprobe.checkpoint.engine.shape import LLAMA, architecture_of, shape_of
from pytest_specprobe.checkpoint.files.header import TensorInfo
from pytest_specprobe.checkpoint.files.values import read_rows
from pytest_specprobe.checkpoint.vocab_mapping import find

_SKIP = "the drafter's class, sizes or files could not be read"
_ALIKE = 0.9


def _own_head(s: Subject) -> TensorInfo | None:
    return head_of(s.weights) if s.weights else None


@check(
    "head.key-missing",
    culprit="drafter-config",
    asks="config.json says draft_vocab_size (a number, or null to borrow the target's head)",
    why="LlamaForCausalLMEagle3 reads the key without a default: the boot ends in AttributeError.",
    fix="set draft_vocab_size to the rows of lm_head, or to null to use the target's head",
    follows=("config.nested",),
)
def key_missing(s: Subject) -> Outcome:
    """Null, missing, equal and smaller are four different things."""
    if not s.config or architecture_of(s.config) != LLAMA:
        return skipped("no LlamaForCausalLMEagle3 config")
    if "draft_vocab_size" in s.config:
        return passed(f"draft_vocab_size {s.config['draft_vocab_size']}")
    return failed("no draft_vocab_size", expected="a number or null")


@check(
    "head.missing",
    asks="a drafter with its own vocabulary ships its head",
    why="The engine builds a private head and leaves it random: accept length exactly 1.00, rate 0.00 "
    "(nvidia/Kimi-K2.6-Eagle3).",
    fix="export lm_head.weight [draft_vocab_size, hidden_size], or set draft_vocab_size to null",
    follows=("tensor.prefix", "head.tied", "config.class", "config.target-as-drafter"),
)
def missing(s: Subject) -> Outcome:
    """draft_vocab_size set implies lm_head.weight."""
    found = account(s)
    if found is None:
        return skipped(_SKIP)
    if "lm_head.weight" not in found.missing():
        return passed("borrowed from the target" if found.shape.draft_vocab is None else "lm_head.weight is there")
    return failed("no lm_head.weight", expected=f"lm_head.weight [{found.shape.head_rows}, {found.shape.hidden}]")


@check(
    "head.draft-vocab-size",
    culprit="drafter-config",
    asks="draft_vocab_size is the number of rows that head and mapping have",
    why="Head and mapping agree with each other and not with the config: the load ends in a size mismatch.",
    fix="set draft_vocab_size to the rows of lm_head.weight",
    follows=("config.class",),
)
def draft_vocab_size(s: Subject) -> Outcome:
    """Trust two witnesses, head and mapping, against one number."""
    shape, head, d2t = shape_of(s.config), _own_head(s), find(s.weights, "d2t")
    if shape is None or head is None or d2t is None or shape.draft_vocab is None:
        return skipped("no head and mapping of its own")
    rows = head.shape[0] if head.shape else 0
    if d2t.shape != (rows,) or rows == shape.draft_vocab:
        return passed(f"{shape.draft_vocab:,}")
    return failed(f"draft_vocab_size {shape.draft_vocab:,}", expected=f"{rows:,}, as lm_head and d2t have")


@check(
    "head.rows",
    asks="lm_head.weight is [draft_vocab_size, hidden_size]",
    why="The load ends in a size mismatch.",
    fix="export the head that belongs to this config",
    follows=("head.draft-vocab-size", "config.class", "head.borrowed-but-mapped", "head.tied",
             "config.target-as-drafter"),
)  # fmt: skip
def rows(s: Subject) -> Outcome:
    """Header shape against config."""
    found = account(s)
    tensor = found.filled.get(Slot("lm_head.weight")) if found else None
    if found is None or tensor is None:
        return skipped("no head of its own")
    wanted = (found.shape.head_rows, found.shape.hidden)
    if tensor.shape == wanted:
        return passed(f"{list(wanted)}")
    return failed(f"{list(tensor.shape)}", expected=f"{list(wanted)}")


@check(
    "head.tied",
    culprit="drafter-config",
    asks="tie_word_embeddings is false for a drafter with its own head",
    why="Tied, the engine uses the target's embedding as the draft head and drops lm_head; with a reduced vocabulary "
    "every draft id is then wrong.",
    fix="set tie_word_embeddings to false in the drafter's config.json (small targets pass it on by inheritance)",
)
def tied(s: Subject) -> Outcome:
    """Tie together with an lm_head tensor or a reduced vocabulary."""
    shape = shape_of(s.config)
    if shape is None:
        return skipped(_SKIP)
    if not shape.tied:
        return passed("not tied")
    head = _own_head(s)
    if head is None and shape.head_rows == shape.vocab:
        return passed("tied, without a head of its own")
    what = "an lm_head tensor" if head is not None else f"draft_vocab_size {shape.head_rows:,}"
    return failed(f"tie_word_embeddings true with {what}", expected="tie_word_embeddings false")


@check(
    "head.borrowed-but-mapped",
    culprit="drafter-config",
    asks="a drafter that borrows the target's head has no mapping and no head of its own",
    why="draft_vocab_size null makes the engine use the target's full head; a reduced head or d2t in the file then "
    "fails to load or maps ids that are target ids already.",
    fix="set draft_vocab_size to the rows of lm_head.weight",
    follows=("config.class", "head.key-missing"),
)
def borrowed_but_mapped(s: Subject) -> Outcome:
    """Null with the files of a reduced drafter."""
    shape, head, d2t = shape_of(s.config), _own_head(s), find(s.weights, "d2t")
    if shape is None or shape.draft_vocab is not None or s.weights is None:
        return skipped("draft_vocab_size is set")
    wrong = [
        f"{t.name} {list(t.shape)}" for t in (head, d2t) if t is not None and t.shape and t.shape[0] != shape.vocab
    ]
    if not wrong:
        return passed("borrowed from the target")
    return failed(f"draft_vocab_size null with {', '.join(wrong)}", expected="the drafter's own draft_vocab_size")


@check(
    "head.embedding-rows",
    asks="embed_tokens.weight is [vocab_size, hidden_size]",
    why="The load ends in a size mismatch, before the target's embedding would have replaced it.",
    fix="set vocab_size to the rows of embed_tokens, or leave embed_tokens out",
    follows=("config.class", "config.target-as-drafter", "target.hidden"),
)
def embedding_rows(s: Subject) -> Outcome:
    """Header shape against config."""
    found = account(s)
    tensor = found.filled.get(Slot("model.embed_tokens.weight")) if found else None
    if found is None or tensor is None:
        return skipped("no embedding in the file")
    wanted = (found.shape.vocab, found.shape.hidden)
    return (
        passed(f"{list(wanted)}")
        if tensor.shape == wanted
        else failed(f"{list(tensor.shape)}", expected=f"{list(wanted)}")
    )


@check(
    "head.embedding-differs",
    severity="warning",
    asks="an embedding in the file is the target's own",
    why="SGLang replaces it with the target's, other engines may use the file's: one file, good here and bad there.",
    fix="leave embed_tokens out of the export, or copy the target's",
    follows=("head.embedding-rows", "target.hidden", "target.vocab"),
)
def embedding_differs(s: Subject) -> Outcome:
    """Compare a sample of rows by cosine."""
    found = account(s)
    mine = found.filled.get(Slot("model.embed_tokens.weight")) if found else None
    theirs = s.target.tensors.get("embed") if s.target else None
    if mine is None or theirs is None or len(mine.shape) != 2 or mine.shape[1] != theirs.shape[1]:
        return skipped("no two embeddings to compare")
    limit = min(mine.shape[0], theirs.shape[0])
    picked = [limit * i // 16 for i in range(16)]
    left, right = read_rows(mine, picked), read_rows(theirs, picked, culprit="target")
    if left is None or right is None:
        return skipped("an embedding is not stored as floats")
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    used = norms > 0
    if not used.any():
        return skipped("the sampled rows are empty")
    cosine = float(((left * right).sum(axis=1)[used] / norms[used]).mean())
    if cosine >= _ALIKE:
        return passed(f"cosine {cosine:.2f} over {int(used.sum())} rows")
    return failed(f"cosine {cosine:.2f} over {int(used.sum())} rows", expected=f"above {_ALIKE}")


CHECKS: tuple[Check, ...] = (
    key_missing, missing, draft_vocab_size, rows, tied, borrowed_but_mapped, embedding_rows, embedding_differs,
)  # fmt: skip
