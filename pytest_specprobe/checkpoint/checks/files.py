"""The files themselves: readable, complete, of one piece, and nothing that should not be there."""

from pytest_specprobe.checkpoint.check import Check, Outcome, Subject, check, failed, judged, passed, skipped
from pytest_specprobe.checkpoint.engine.accounting import names
from pytest_specprobe.errors import (
    FILE_BAD_HEADER,
    FILE_BAD_JSON,
    FILE_INDEX_PATH,
    FILE_LFS_POINTER,
    FILE_MISSING,
    FILE_PICKLED,
    FILE_TRUNCATED,
    FILE_UNREADABLE,
)

_OPTIMIZER = ("training_state.pt", "optimizer.pt", "optimizer.bin", "scheduler.pt", "rng_state", "trainer_state.json",
              "global_step", "zero_pp_rank", "scaler.pt")  # fmt: skip
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def _reading(id: str, *, asks: str, why: str, fix: str) -> Check:  # noqa: A002 - the word users see
    """Return a check that fails if reading the drafter ended in the fault of this id."""

    def run(s: Subject) -> Outcome:
        fault = next((f for f in s.faults if f.finding_id == id), None)
        if fault is None:
            return passed("nothing of the kind")
        return failed(fault.what, expected=asks, fix=fault.fix, culprit=fault.culprit)

    return check(id, asks=asks, why=why, fix=fix)(run)


_READING: tuple[Check, ...] = (
    _reading(
        FILE_MISSING,
        asks="the files of a drafter are there",
        why="There is nothing to load.",
        fix="download config.json and the weights",
    ),
    _reading(
        FILE_LFS_POINTER,
        asks="files hold their content",
        why="A Git LFS pointer is a text of three lines: the loader ends in HeaderTooLarge.",
        fix="run `git lfs pull`",
    ),
    _reading(
        FILE_TRUNCATED,
        asks="files are complete",
        why="A download that was cut ends the load, or leaves the last tensors wrong.",
        fix="download the file again",
    ),
    _reading(
        FILE_BAD_HEADER,
        asks="weights are valid safetensors files",
        why="The loader refuses the file.",
        fix="export the checkpoint again",
    ),
    _reading(
        FILE_BAD_JSON,
        asks="config.json and the index are JSON objects",
        why="The boot ends.",
        fix="restore the file",
    ),
    _reading(
        FILE_INDEX_PATH,
        asks="an index names files in its own directory",
        why="It would make the loader read elsewhere.",
        fix="export the checkpoint again",
    ),
    _reading(
        FILE_PICKLED,
        asks="weights are safetensors",
        why="Pickled weights run code when they are loaded, and one such drafter was 1.4 GB of float32.",
        fix="convert them to safetensors in a sandbox",
    ),
    _reading(
        FILE_UNREADABLE,
        asks="files can be read",
        why="There is nothing to load.",
        fix="check permissions and links",
    ),
)


@check(
    "file.index",
    asks="index and shards name the same tensors",
    why="A tensor that only the index knows is not loaded; a shard's extra tensor is, though the index hides it.",
    fix="export the checkpoint again, or copy the missing shard",
)
def index(s: Subject) -> Outcome:
    """Index against headers."""
    if s.weights is None or s.weights.index is None:
        return skipped("no index")
    held, listed = set(s.weights.tensors), set(s.weights.index)
    moved = [n for n in held & listed if s.weights.tensors[n].file.name != s.weights.index[n].rpartition("/")[2]]
    wrong = [f"{n} only in the index" for n in sorted(listed - held)]
    wrong += [f"{n} only in a shard" for n in sorted(held - listed)] + [
        f"{n} in another shard" for n in sorted(moved)
    ]
    return judged(names(wrong), expected="the same tensors", good=f"{len(held)} tensors")


@check(
    "file.repeated",
    severity="warning",
    asks="no tensor is in two files",
    why="The file that is read last wins; two versions of one drafter may be mixed.",
    fix="remove the files that do not belong to this drafter",
)
def repeated(s: Subject) -> Outcome:
    """One name, two files."""
    if s.weights is None:
        return skipped("the weights could not be read")
    return judged(names(s.weights.repeated), expected="one file each", good="one file each")


@check(
    "file.pickled-beside",
    severity="warning",
    asks="no pickled weights lie beside the safetensors",
    why="They may be an older or newer version, and they run code if a tool prefers them.",
    fix="remove them; staging leaves them out",
)
def pickled_beside(s: Subject) -> Outcome:
    """Pickle next to safetensors."""
    if s.weights is None:
        return skipped("the weights could not be read")
    found = [n for n in s.listing if n.endswith(_PICKLED) and not n.startswith(_OPTIMIZER)]
    return judged(names(found), expected="safetensors only", good="none")


@check(
    "file.optimizer-state",
    severity="warning",
    asks="no training state is published with the weights",
    why="Everyone who serves the drafter downloads it too: tens of gigabytes for one published drafter.",
    fix="remove it; staging leaves it out",
)
def optimizer_state(s: Subject) -> Outcome:
    """Optimiser and trainer files."""
    found = [n for n in s.listing if n.startswith(_OPTIMIZER)]
    return judged(names(found), expected="weights and config only", good="none")


CHECKS: tuple[Check, ...] = (*_READING, index, repeated, pickled_beside, optimizer_state)
