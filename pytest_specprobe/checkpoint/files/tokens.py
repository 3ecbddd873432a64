"""What a target's tokenizer files say: how many ids there are and which ones end an answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_specprobe.reading import Bounds, Unreadable, parse_json, read_bytes

MAX_TOKENIZER_BYTES = 48 << 20
_BOUNDS = Bounds(size=MAX_TOKENIZER_BYTES)

# Tokens that end a turn in the chat templates of the families we know; only those that a tokenizer really has count.
END_OF_TURN = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<end_of_turn>", "<turn|>", "</s>", "[EOS]",
    "<|endoftext|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|end_of_text|>", "<|eot|>",
    "<|role_end|>", "<|endofturn|>",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """Ids of a tokenizer: ``size`` is the highest id + 1 (None without readable files).

    ``stops`` maps each id that ends generation or a turn to its text (or ``eos`` where only the id is known).
    """

    size: int | None
    stops: Mapping[int, str]


def read_token_facts(folder: Path, *, configs: Iterable[Mapping[str, Any]]) -> TokenFacts:
    """Gather ids from generation_config.json, the configs, tokenizer_config.json, tokenizer.json, tiktoken.model.

    Every file is optional; an unreadable one counts as absent, since the engine loads the tokenizer and says so.
    """
    settings = _load(folder / "tokenizer_config.json")
    added = _added(settings)
    size = max(added, default=-1) + 1
    full = _load(folder / "tokenizer.json")
    if full:
        vocab = full.get("model", {}).get("vocab") if isinstance(full.get("model"), dict) else None
        ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab)) if isinstance(vocab, list) else ()
        size = max(size, max((i for i in ids if type(i) is int), default=-1) + 1)
        entries = full.get("added_tokens")
        if isinstance(entries, list):
            added = {e["id"]: e["content"] for e in entries if _is_entry(e)} | added
            size = max(size, max(added, default=-1) + 1)
    else:
        size = max(size, _tiktoken_size(folder / "tiktoken.model"))
    return TokenFacts(size=size or None, stops=_stops(folder, settings, added, configs))


def _stops(
    folder: Path, settings: Mapping[str, Any], added: Mapping[int, str], configs: Iterable[Mapping[str, Any]]
) -> dict[int, str]:
    stops: dict[int, str] = {}
    for source in (_load(folder / "generation_config.json"), *configs):
        value = source.get("eos_token_id")
        for token in value if isinstance(value, list) else [value]:
            if type(token) is int and token >= 0:
                stops[token] = added.get(token, "eos")
    eos = settings.get("eos_token")
    eos_text = eos.get("content") if isinstance(eos, dict) else eos
    template = settings.get("chat_template")
    used = template if isinstance(template, str) else _text(folder / "chat_template.jinja")
    return stops | {
        t: text for t, text in added.items() if text == eos_text or (text in END_OF_TURN and text in used)
    }


def _added(settings: Mapping[str, Any]) -> dict[int, str]:
    decoder = settings.get("added_tokens_decoder")
    if not isinstance(decoder, dict):
        return {}
    return {
        int(key): entry["content"]
        for key, entry in decoder.items()
        if key.isascii()
        and key.isdigit()
        and len(key) < 10
        and isinstance(entry, dict)
        and isinstance(entry.get("content"), str)
    }


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("id")) is int
        and entry["id"] >= 0
        and isinstance(entry.get("content"), str)
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(_bytes(path), _BOUNDS, numbers="any")
    except Unreadable:
        return {}
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "replace")


def _tiktoken_size(path: Path) -> int:
    """Ranks of a tiktoken file: one ``base64 rank`` pair a line, ranks from 0 without gaps."""
    return _bytes(path).count(b"\n")


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path, limit=MAX_TOKENIZER_BYTES)
    except Unreadable:
        return b""
