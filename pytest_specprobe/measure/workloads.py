"""Prompt sets: built in by domain, or a user's own JSONL; always real text, always through the chat template.

Invariant: a loaded workload has distinct ids and distinct texts, so that prompts are independent and pair between
runs; its ``digest`` changes whenever any of them does.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.reading import Bounds, Unreadable, parse_json, read_text

DOMAINS = ("chat", "code", "math", "language", "summary")
_BUILT_IN = Path(__file__).with_name("workloads")
_KEYS = frozenset({"id", "workload", "messages", "prompt"})
_ROLES = frozenset({"system", "user", "assistant"})
_BOUNDS = Bounds(size=64 << 20, depth=16)
_RANDOM_WORDS = 150
_RANDOM_REPEATS = 0.001
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_]+")

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One prompt before the chat template: messages with ``role`` and ``content``, the last one the user's."""

    id: str
    workload: str
    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """Return all contents as one text."""
        return "\n".join(message["content"] for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A named set of chats; ``digest`` is the SHA-256 of their canonical JSON, in order."""

    name: str
    chats: tuple[Chat, ...]
    digest: str

    def prompts(self, tokenize_chat: Callable[[Sequence[Message]], tuple[int, ...]]) -> tuple[Prompt, ...]:
        """Return the prompts as token ids; ``tokenize_chat`` applies the target's own chat template."""
        return tuple(
            Prompt(id=c.id, workload=c.workload, text=c.text, input_ids=tokenize_chat(c.messages)) for c in self.chats
        )

    def first(self, count: int) -> "Workload":
        """Return the first ``count`` chats, taken from its domains in turn so that each keeps its share."""
        groups: dict[str, list[Chat]] = {}
        for chat in self.chats:
            groups.setdefault(chat.workload, []).append(chat)
        in_turn = [c for c in chain.from_iterable(zip_longest(*groups.values())) if c is not None]
        chosen = {c.id for c in in_turn[:count]}
        return _workload(self.name, [c for c in self.chats if c.id in chosen])


def load_workload(name: str, *, root: Path) -> Workload:
    """Return a built-in workload (``default`` is all domains together) or a user's JSONL file.

    Each line of a file is an object with ``messages`` or ``prompt``, and optionally ``id`` (else a digest of the
    text) and ``workload`` (else the file's name).

    :param name: a built-in name, or a path that ends in ``.jsonl``, relative to ``root``.
    :raises ProfileError: with every problem of the file at once; also for text of random tokens, on which no drafter
        can be judged.
    """
    if name.endswith(".jsonl"):
        path = root / name
        return _read(path.stem, [path])
    known = sorted(["default", *(path.stem for path in _BUILT_IN.glob("*.jsonl"))])
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ProfileError(
            (f"no workload is named {name!r}; {hint}",), fix="name a built-in workload or a file that ends in .jsonl"
        )
    return _read(name, [_BUILT_IN / f"{part}.jsonl" for part in (DOMAINS if name == "default" else (name,))])


def looks_random(texts: Iterable[str]) -> bool:
    """Tell whether texts look like random tokens or words.

    In any language and in code a few words make up much of the text: two words drawn at random from real text are the
    same at least once in 500 times, from a vocabulary drawn at random hardly ever. Too little text is never called
    random.
    """
    counts = Counter(word.lower() for text in texts for word in _WORD.findall(text))
    total = counts.total()
    if total < _RANDOM_WORDS:
        return False
    return sum(c * (c - 1) for c in counts.values()) < _RANDOM_REPEATS * total * (total - 1)


def _read(name: str, paths: Sequence[Path]) -> Workload:
    problems: list[str] = []
    chats: list[Chat] = []
    for path in paths:
        for where, line in _lines(path, problems):
            chat = _chat(line, default=path.stem, where=where, problems=problems)
            if chat is not None:
                chats.append(chat)
    problems.extend(_repeats(chats))
    if not problems and len(chats) < 2:
        problems.append(f"{name}: {len(chats)} prompt; a probe needs at least 24 for a verdict, and 2 to run")
    if not problems and looks_random(chat.text for chat in chats):
        problems.append(
            f"{name}: hardly a word occurs twice, as in random tokens: no drafter can be judged on such text"
        )
    if problems:
        raise ProfileError(
            tuple(problems), culprit="workload", fix="correct the workload; README.md describes the format"
        )
    return _workload(name, chats)


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    try:
        text = read_text(path, limit=_BOUNDS.size)
    except Unreadable as error:
        problems.append(f"{path} {error}")
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line


def _chat(line: str, *, default: str, where: str, problems: list[str]) -> Chat | None:
    try:
        entry = parse_json(line, _BOUNDS)
    except Unreadable as error:
        problems.append(f"{where} {error}")
        return None
    if not isinstance(entry, dict):
        problems.append(f"{where}: a JSON object is wanted, not {type(entry).__name__}")
        return None
    found = [*_unknown_keys(entry), *_wrong_types(entry)]
    if ("messages" in entry) == ("prompt" in entry):
        found.append("give either messages or prompt")
    messages = entry.get("messages", [{"role": "user", "content": entry.get("prompt", "")}])
    found.extend(() if found else _wrong_messages(messages))
    if found:
        problems.extend(f"{where}: {problem}" for problem in found)
        return None
    canonical = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return Chat(
        id=entry.get("id") or hashlib.sha256(canonical.encode()).hexdigest()[:12],
        workload=entry.get("workload") or default,
        messages=tuple({"role": m["role"], "content": m["content"]} for m in messages),
    )


def _unknown_keys(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in entry.keys() - _KEYS:
        near = get_close_matches(key, _KEYS, n=1)
        raw = "; token ids would bypass the chat template" if "ids" in key or "token" in key else ""
        yield f"unknown key {key!r:.60}{f'; did you mean {near[0]!r}?' if near else raw}"


def _wrong_types(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in ("id", "workload", "prompt"):
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            yield f"{key} must be a text that is not empty"


def _wrong_messages(messages: object) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages must be a list that is not empty"
        return
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            yield f"message {at} must have role and content, and nothing else"
        elif not isinstance(message["role"], str) or message["role"] not in _ROLES:
            yield f"message {at}: role {message['role']!r:.60} is none of {', '.join(sorted(_ROLES))}"
        elif not isinstance(message["content"], str) or not message["content"].strip():
            yield f"message {at}: content must be a text that is not empty"
        elif at == len(messages) - 1 and message["role"] != "user":
            yield "the last message must be the user's"


def _repeats(chats: Iterable[Chat]) -> Iterator[str]:
    ids: set[str] = set()
    texts: dict[str, str] = {}
    for chat in chats:
        if chat.id in ids:
            yield f"id {chat.id!r:.60} occurs twice"
        elif chat.text in texts:
            first = texts[chat.text]
            yield f"{chat.id!r:.60} has the same text as {first!r:.60}: the same prompt twice is one prompt"
        ids.add(chat.id)
        texts.setdefault(chat.text, chat.id)


def _workload(name: str, chats: Sequence[Chat]) -> Workload:
    content = [[c.id, c.workload, [[m["role"], m["content"]] for m in c.messages]] for c in chats]
    digest = hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()
    return Workload(name=name, chats=tuple(chats), digest=digest)
