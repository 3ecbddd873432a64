"""The address of a running server, as a person types it."""

from urllib.parse import urlsplit


def url_problem(text: str) -> str | None:
    """Say what is wrong with a server's URL; None if it can be asked. Never repeats what may be a secret."""
    if any(mark in text for mark in "@?#"):
        # it would end up on the screen, in the report and in logs
        return "a URL with a password, a query or a fragment is not taken; put the key into SPECPROBE_API_KEY"
    try:
        parts = urlsplit(text)
        # a label that is empty or too long would end in an error of its own when it is looked up
        usable = parts.scheme in ("http", "https") and (parts.hostname or "").encode("idna") and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        return f"{text!r} is no URL; write http://HOST:PORT"
    return None
