"""What a boot needs of a profile's files and flags: said before anything starts, not minutes into it.

Invariant: only what surely ends a boot is a problem here; files that cannot be read are the static checks' to name.
"""

from collections.abc import Iterator
from pathlib import Path

from pytest_specprobe.checkpoint.files.folder import CONFIG, Config, list_files, read_config
from pytest_specprobe.checkpoint.files.read import load_drafter, load_target, text_config
from pytest_specprobe.checkpoint.files.shards import absent_shards, read_index
from pytest_specprobe.errors import CheckpointError, Culprit
from pytest_specprobe.profiles import Profile
from pytest_specprobe.server.spec import values_of

Problem = tuple[Culprit, str]
"""Who is at fault, and a complete sentence with what to type."""

# SGLang loads all of these for a target; a drafter's pickles are refused by a check of their own.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SHOWN = 3


def boot_problems(profile: Profile, *, drafter: Path | None, target: Path | None) -> tuple[Problem, ...]:
    """Return what would end the boot of an owned server; nothing for what is not there or cannot be read."""
    problems: list[Problem] = []
    for role, place in (("target", target), ("drafter", drafter)):
        config = None if place is None else _config(place)
        if place is None or config is None:
            continue
        if role == "target":
            problems += _without_weights(profile, place)
        # attention has ranks of its own under data parallelism
        if "--enable-dp-attention" not in profile.target.server_args:
            problems += _indivisible(role, config, tp=profile.target.tp)
    return tuple(problems)


def unreadable_files(*, drafter: Path | None, target: Path | None) -> tuple[Problem, ...]:
    """Return what keeps the static checks from reading these files: a drafter without weights, a broken config."""
    problems: list[Problem] = []
    for place, load in ((drafter, load_drafter), (target, load_target)):
        try:
            if place is not None:
                load(place)
        except CheckpointError as error:
            problems.append((error.culprit, f"{error.what}: {error.fix}"))
    return tuple(problems)


def _without_weights(profile: Profile, target: Path) -> Iterator[Problem]:
    if values_of(profile.target.server_args, "--load-format"):
        return
    fetch = f"fetch the weights of {profile.target.model} to where its config is"
    try:
        index = read_index(target, culprit="target")
        absent = () if index is None else absent_shards(target, index)
        if absent:
            more = f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
            yield "target", f"target {target} lacks {', '.join(absent[:_SHOWN])}{more} of its index: {fetch}"
        elif not any(name.endswith(_WEIGHTS) for name in list_files(target)):
            yield "target", f"target {target} holds no weights: {fetch}"
    except CheckpointError:
        return


def _config(place: Path) -> Config | None:
    try:
        return text_config(read_config(place / CONFIG, culprit="target"))
    except CheckpointError:
        return None


def _indivisible(role: str, config: Config, *, tp: int) -> Iterator[Problem]:
    """Yield what tensor parallelism cannot split: query heads evenly, key-value heads evenly or by whole copies."""
    heads = config.get("num_attention_heads")
    groups = heads if "kv_lora_rank" in config else config.get("num_key_value_heads", heads)
    for name, count, copies in (("num_attention_heads", heads, False), ("num_key_value_heads", groups, True)):
        if type(count) is not int or count < 1 or count % tp == 0 or (copies and tp % count == 0):
            continue
        yield "launch-flags", f"tp = {tp} does not divide {name} = {count} of the {role}: set tp to a divisor"
        return
