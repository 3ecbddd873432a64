"""Targets, drafters and gates as TOML profiles: read, merged, and refused all at once.

Later sources win, table by table and key by key: the built-in ``catalog.toml``, ``[tool.specprobe]`` of
pyproject.toml, ``specprobe.toml``, then the file of ``--specprobe-profiles``.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.reading import Bounds, Unreadable, parse_toml, read_text, require_within

_BOUNDS = Bounds(size=1 << 20, depth=32, text=65536)
CATALOG = Path(__file__).with_name("catalog.toml")
FIXTURES_SCHEME = "fixtures://"
Verdict = Literal["broken", "uncorrelated", "profitable", "verify-bound", "finetune", "undecided"]
BaselineMode = Literal["boot", "alternating", "stored", "none"]
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
Name = Annotated[str, Field(pattern=f"^{_NAME}$")]
Share = Annotated[float, Field(gt=0, lt=1)]


NAMES = "letters, digits and _ . -, of which the first is a letter or digit, 80 at most"


def is_name(text: str) -> bool:
    """Tell whether a target or drafter may be called so: names become file names and test ids."""
    return re.fullmatch(_NAME, text) is not None


class _Table(BaseModel):
    # strict: "true" must not turn remote code on, nor true be one GPU
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


T = TypeVar("T", bound=_Table)


class Speculation(_Table):
    """How a server drafts: SGLang's three numbers, given together or not at all.

    With ``eagle_topk`` 1, ``num_draft_tokens`` must be ``num_steps + 1``: SGLang would silently adjust it, and a
    record would then name a setting that never ran.
    """

    num_steps: Annotated[int, Field(ge=1, le=64)]
    eagle_topk: Annotated[int, Field(ge=1, le=64)]
    num_draft_tokens: Annotated[int, Field(ge=2, le=512)]

    @property
    def depth(self) -> int:
        """D: the most drafts one round can accept; the largest accept length is D + 1."""
        return min(self.num_steps, self.num_draft_tokens - 1)

    @model_validator(mode="after")
    def _chain_has_no_spare_tokens(self) -> Self:
        if self.eagle_topk == 1 and self.num_draft_tokens != self.num_steps + 1:
            raise ValueError(
                f"with eagle_topk 1, num_draft_tokens must be num_steps + 1 = {self.num_steps + 1}, "
                f"not {self.num_draft_tokens}"
            )
        return self

    def __str__(self) -> str:
        return f"{self.num_steps}/{self.eagle_topk}/{self.num_draft_tokens}"


class Gate(_Table):
    """What a probe must show to pass; compared with interval bounds, never with bare values.

    ``min_accept_length`` is a bound on the strict accept length (tokens per round, bonus counted),
    ``min_speedup`` a ratio, ``min_tok_per_s`` tokens per second of one stream; ``p_reach`` is the per-position
    acceptance that training is believed to reach and ``min_headroom`` the L(p_reach)/B that makes it worth it.
    ``min_accept_length_by_workload`` asks for more on single workloads (``{ code = 1.8 }``), each of at least 12
    prompts (with fewer it is inconclusive). ``max_regression`` is the share of accept length or tok/s that may be
    lost against earlier runs of the same key (0: not asked).
    """

    min_accept_length: Annotated[float, Field(ge=0)] = 1.0
    min_accept_length_by_workload: Mapping[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    min_speedup: Annotated[float, Field(ge=0)] = 0.0
    min_tok_per_s: Annotated[float, Field(ge=0)] = 0.0
    accept_verdicts: Annotated[tuple[Verdict, ...], Strict(strict=False)] = ("profitable", "finetune")
    p_reach: Share = 0.80
    min_headroom: Annotated[float, Field(gt=0)] = 1.10
    max_regression: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Target(_Table):
    """A target model and how to serve it.

    ``model`` is a hub id, a directory, or ``fixtures://NAME`` for a model of this repository. ``baseline`` says
    where the speed without speculation comes from: booted (``alternating``: in turn
    with the drafter's server, never beside it), stored, none, or a declared number of tok/s.
    ``env_pass`` names environment variables (``NAME`` or ``PREFIX_*``) that pass to the server beside the usual ones.
    ``max_new_tokens`` is the most tokens of one answer, a thinking target's thoughts included. ``thinking`` is handed
    to the chat template (as ``thinking`` and ``enable_thinking``); without it the template decides.
    """

    model: Annotated[str, Field(min_length=1)]
    tp: Annotated[int, Field(ge=1)] = 1
    trust_remote_code: bool = False
    server_args: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    env_pass: Annotated[tuple[str, ...], Strict(strict=False)] = ()
    devices: Annotated[tuple[Literal["cuda", "cpu"], ...], Strict(strict=False)] = ("cuda",)
    baseline: BaselineMode | Annotated[float, Field(gt=0)] = "boot"
    boot_timeout_s: Annotated[float, Field(gt=0)] = 1800.0
    workload: Annotated[str, Field(min_length=1)] = "default"
    max_new_tokens: Annotated[int, Field(ge=16, le=65536)] = 256
    thinking: bool | None = None


class Drafter(_Table):
    """A drafter, the target it drafts for, and what it must show. ``blind`` None means: where boots are cheap."""

    source: Annotated[str, Field(min_length=1)]
    target: Name
    speculation: Speculation
    gate: Gate = Gate()
    workload: str | None = None
    blind: bool | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One drafter of the merged profiles, with its target: what one probe runs on."""

    name: str
    drafter: Drafter
    target_name: str
    target: Target

    @property
    def workload(self) -> str:
        """Return the workload's name: the drafter's own, else the target's."""
        return self.drafter.workload or self.target.workload


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles known to this run, and the files they came from (the last one wins)."""

    targets: Mapping[str, Target]
    drafters: Mapping[str, Drafter]
    sources: tuple[Path, ...]

    def get(self, name: str) -> Profile:
        """Return the profile of a drafter.

        :raises ProfileError: if no drafter of that name exists; names the nearest ones.
        """
        if name not in self.drafters:
            near = get_close_matches(name, self.drafters, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self.drafters))}"
            raise ProfileError(
                (f"no drafter profile is named {name!r}; {hint}",),
                fix="add [drafters.NAME] to specprobe.toml, or pass --specprobe-profiles=FILE",
            )
        drafter = self.drafters[name]
        return Profile(name, drafter, drafter.target, self.targets[drafter.target])


def load_profiles(root: Path, *, extra: Path | None = None) -> Profiles:
    """Read and merge the catalog and a project's own profiles.

    :param root: the project's root directory (pytest's rootdir).
    :param extra: the file of ``--specprobe-profiles``.
    :raises ProfileError: with every problem of every file, if there is any.
    """
    problems: list[str] = []
    tables: dict[str, dict[str, Any]] = {"targets": {}, "drafters": {}}
    sources: list[Path] = []
    for path, section in _files(root, extra):
        data = _read(path, problems, section=section)
        if data:
            sources.append(path)
            _merge(tables, data, path=path, problems=problems)
    targets = _parse("targets", Target, tables["targets"], problems)
    drafters = _parse("drafters", Drafter, tables["drafters"], problems)
    for name, drafter in drafters.items():
        if drafter.target not in tables["targets"]:
            near = get_close_matches(drafter.target, tables["targets"], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(f"drafters.{name}: target {drafter.target!r} is not defined{hint}")
    if problems:
        raise ProfileError(tuple(problems), fix="correct the profile files named above; README.md lists the keys")
    return Profiles(targets, drafters, tuple(sources))


def _files(root: Path, extra: Path | None) -> Iterable[tuple[Path, tuple[str, ...]]]:
    """Yield the files that are there, and the table of each that is ours."""
    yield CATALOG, ()
    if os.path.lexists(root / "pyproject.toml"):
        yield root / "pyproject.toml", ("tool", "specprobe")
    if os.path.lexists(root / "specprobe.toml"):
        yield root / "specprobe.toml", ()
    if extra is not None:
        yield extra, ()


def _read(path: Path, problems: list[str], *, section: tuple[str, ...]) -> dict[str, Any]:
    try:
        data = parse_toml(read_text(path, limit=_BOUNDS.size), depth=_BOUNDS.depth)
        for name in section:
            data = data.get(name, {})
            if not isinstance(data, dict):
                raise Unreadable(f"has {name} as something else than a table")
        # What other tools say in pyproject.toml is theirs: it may be infinite.
        require_within(data, _BOUNDS)
    except Unreadable as error:
        problems.append(f"{path} {error}")
        return {}
    return data


def _merge(tables: dict[str, dict[str, Any]], data: Mapping[str, Any], *, path: Path, problems: list[str]) -> None:
    for kind, entries in data.items():
        if kind not in tables or not isinstance(entries, dict):
            problems.append(f"{path}: unknown table [{kind}]{_nearest(kind, tables)}")
            continue
        for name, entry in entries.items():
            if not is_name(name):
                problems.append(f"{path}: {kind}.{json.dumps(name)} is no name: {NAMES}")
            elif isinstance(entry, dict):
                tables[kind][name] = _deep({**tables[kind].get(name, {})}, entry)
            else:
                problems.append(f"{path}: {kind}.{name} must be a table")


def _deep(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in new.items():
        both_tables = isinstance(value, dict) and isinstance(old.get(key), dict)
        old[key] = _deep({**old[key]}, value) if both_tables else value
    return old


def _parse(kind: str, model: type[T], entries: Mapping[str, Any], problems: list[str]) -> dict[str, T]:
    parsed: dict[str, T] = {}
    for name, entry in entries.items():
        try:
            parsed[name] = model.model_validate(entry)
        except ValidationError as error:
            problems.extend(_explain(f"{kind}.{name}", model, error))
    return parsed


def _explain(where: str, model: type[BaseModel], error: ValidationError) -> Iterable[str]:
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"][:-1])
            yield f"{where}: unknown key {path!r}{_nearest(str(item['loc'][-1]), known)}"
        else:
            yield f"{where}{'.' + path if path else ''}: {item['msg'].removeprefix('Value error, ')}"


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> Iterable[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return ()
        model = field.annotation
    return tuple(model.model_fields)


def _nearest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}" if names else ""
