"""Keep secrets out of what is shown: command lines, logs, reports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_specprobe.secret import HIDDEN, Secret
from pytest_specprobe.server.secret_forms import hide_forms, is_secret_name


def redact_text(text: str, *, secrets: Iterable[Secret] = ()) -> str:
    """Return ``text`` without the given secrets and without anything that looks like one by its name."""
    for secret in secrets:
        text = secret.hide(text)
    return hide_forms(text)


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
