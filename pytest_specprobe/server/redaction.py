"""Keep secrets out of what is shown: command lines, logs, reports."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_specprobe.secret import HIDDEN, Secret

# A whole word of the name, so that TOKENIZER_PATH and max_total_tokens stay readable.
_SECRET_WORDS = re.compile(
    r"(^|[_-])(token$|secret|password|passwd|api[_-]?key|access[_-]?key|admin[_-]?key|private[_-]?key|credentials?"
    r"|authorization|keyfile[_-]?password)($|[_-])",
    re.IGNORECASE,
)
# Secrets that a server prints by name: api_key='...', --api-key ..., "Authorization: Bearer ...".
_IN_TEXT = (
    re.compile(r"((?:admin_)?api_key['\"]?\s*[:=]\s*)(?!None|null)(['\"]?)[^\s'\",)}]+\2", re.IGNORECASE),
    re.compile(r"(--(?:admin-)?api-key[=\s]+)()['\"]?[^\s'\"]+['\"]?"),
    re.compile(r"(\bBearer\s+)()[A-Za-z0-9._~+/=-]+"),
    re.compile(r"(\b(?:hf|ghp|sk)[_-])()[A-Za-z0-9_-]{16,}"),
    re.compile(r"([a-z][a-z0-9+.-]*://)()[^\s/@:'\"]+:[^\s/@'\"]+(?=@)", re.IGNORECASE),
)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, flag or JSON key of this name holds a secret."""
    return bool(_SECRET_WORDS.search(name))


def redact_text(text: str, *, secrets: Iterable[Secret] = ()) -> str:
    """Return ``text`` without the given secrets and without anything that looks like one by its name."""
    for secret in secrets:
        text = secret.hide(text)
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def redact_value(value: Any, *, secrets: Iterable[Secret] = ()) -> Any:
    """Return a JSON value with secrets hidden at any depth: by key name, and by content."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if item is not None and is_secret_name(str(key)) else redact_value(item, secrets=secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return type(value)(redact_command(value, secrets=secrets))
    if isinstance(value, list | tuple):
        return type(value)(redact_value(item, secrets=secrets) for item in value)
    return redact_text(value, secrets=secrets) if isinstance(value, str) else value


def redact_command(command: Sequence[str], *, secrets: Iterable[Secret] = ()) -> tuple[str, ...]:
    """Return a command line with the values of secret flags hidden."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        if hide_next:
            shown.append(HIDDEN)
            hide_next = False
        elif flag.startswith("--") and is_secret_name(flag.removeprefix("--")):
            shown.append(f"{flag}={HIDDEN}" if equals else word)
            hide_next = not equals
        else:
            shown.append(redact_text(word, secrets=secrets))
    return tuple(shown)
