"""What secrets look like in text: assignments, headers, flags, URLs, and keys that are known by their beginning.

Invariant: every pattern is linear. It starts at a literal or where a run of its characters begins, its repeats are
possessive or bounded, and it crosses no line but where it says so.
"""

import re
from collections.abc import Callable

from pytest_specprobe.foreign import uncoloured
from pytest_specprobe.secret import HIDDEN

# A name ends in one of these: api_key, accessToken, DB_PASS, X-Amz-Signature, sharedAccessKey.
_WORDS = (
    r"(?:token|secret|passwd|password|passphrase|pwd|[_-]pass|credentials?|signature|security[_-]token"
    r"|(?:api|access|admin|private|account|storage|signing|encryption|master|secret|shared|session)[_. -]?key"
    r"|(?<![a-z0-9])auth|(?<![a-z0-9])sig|authkey)"
)
_NAME = re.compile(rf"{_WORDS}(?:_?\d)?$|(?:^|[_-])(?:cookie|authorization)$", re.IGNORECASE)
_MIDDLE = re.compile(
    r"(?:^|[_-])(?:secret|password|passwd|api[_-]?key|access[_-]?key|admin[_-]?key|private[_-]?key|credentials?"
    r"|authorization)(?:$|[_-])",
    re.IGNORECASE,
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Tokens of a vocabulary, not of a person.
_VOCABULARY = re.compile(
    r"(?:bos|eos|pad|unk|sep|cls|mask|eot|eom|image|audio|video|special|stop|next|first|last|draft|bonus|input|output"
    r"|prompt|new|swa|full|mamba|cached|per|subword|top|accepted|#)[_ #-]?$",
    re.IGNORECASE,
)
_COUNT = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?%?")
_NOTHING = frozenset({"none", "null", "true", "false", "***", "<none>", "nil", "undefined"})

_SCHEME = r"(?:(?:Bearer|Basic|Digest|Token|ApiKey|Negotiate)[ \t]{1,8})?"
# quoted (with escapes), quoted within a string (\"...\"), or bare up to what ends a word
_QUOTED = r"\"(?:[^\"\\\n]++|\\.)*+\"?|'(?:[^'\\\n]++|\\.)*+'?|\\+[\"'][^\"'\\\n]*+(?:\\+[\"'])?"
_BARE = r"[^\s\"',;)}\]&<>\\]++"
_VALUE = rf"(?:{_QUOTED}|{_BARE})"
_AFTER = r"(?:_?\d)?(?:\\*[\"']|>)?[ \t]{0,8}(?:=>|:=|[:=]|(?<=>))[ \t]{0,8}[\[({]?(?:!!str )?"

_Sub = str | Callable[[re.Match[str]], str]


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, flag, header or JSON key of this name holds a secret."""
    snake = _HUMPS.sub("_", name)
    if word := _NAME.search(snake):
        return not _VOCABULARY.search(snake[: word.start()] or " ")
    return bool(_MIDDLE.search(snake))


def _assigned(match: re.Match[str]) -> str:
    """Hide a value by the name before it; a count and the word for nothing stay, as do tokens of a vocabulary."""
    name, after, scheme, value = match.group("name", "after", "scheme", "value")
    bare = value.strip("\\\"'")
    if bare.lower() in _NOTHING:
        return match[0]
    if name.lower() == "token" and not scheme:
        before = match.string[max(0, match.start() - 12) : match.start()]
        if _COUNT.fullmatch(bare) or _VOCABULARY.search(before):
            return match[0]
    return f"{name}{after}{scheme}{HIDDEN}"


def _listed(match: re.Match[str]) -> str:
    return match[0] if match["value"].startswith(("--", "'--", '"--')) else f"{match['flag']}{HIDDEN}"


def _basic(match: re.Match[str]) -> str:
    """Hide base64, which mixes cases; a word after ``Basic`` stays."""
    text = match["value"]
    return f"{match['scheme']}{HIDDEN}" if text.lower() != text and text.upper() != text else match[0]


# In order: the first word is what must be in the text for the pattern to be tried, in lower case.
_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], _Sub], ...] = (
    (
        ("private key",),
        re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:[\w+/=\s\\,:]|-(?!----END)){1,8192}+"),
        rf"\1{HIDDEN}",
    ),
    (
        ("authorization", "cookie"),
        re.compile(
            rf"(?P<name>authorization|cookie2?)(?P<after>{_AFTER})(?P<scheme>{_SCHEME})"
            rf"(?P<value>{_QUOTED}|[^\n\"'\\]++)",
            re.IGNORECASE,
        ),
        _assigned,
    ),
    (
        ("token", "secret", "pass", "pwd", "credential", "signature", "key", "auth", "sig"),
        re.compile(
            rf"(?P<name>{_WORDS})(?P<after>{_AFTER})(?P<scheme>{_SCHEME})(?P<value>{_VALUE})", re.IGNORECASE
        ),
        _assigned,
    ),
    (
        ("--",),
        re.compile(
            rf"(?P<flag>(?<![A-Za-z0-9-])--[a-z0-9-]{{0,60}}?{_WORDS}(?:[ \t]{{1,8}}|[\"'][ \t]*+,\s{{0,40}}))"
            rf"(?P<value>{_VALUE})",
            re.IGNORECASE,
        ),
        _listed,
    ),
    (("bearer",), re.compile(
        r"(?P<scheme>(?<![a-z])Bearer[ \t]{1,8})(?!(?:tokens?|auth\w{0,20}|keys?|is|and|or)\b)[A-Za-z0-9._~+/=-]++",
        re.IGNORECASE), rf"\g<scheme>{HIDDEN}"),
    (("basic",), re.compile(
        r"(?P<scheme>(?<![a-z])Basic[ \t]{1,8})(?P<value>[A-Za-z0-9+/]{8,}+={0,2})", re.IGNORECASE), _basic),
    (("://",), re.compile(r"(?<=://)[^\s/'\"<>?#]{1,512}@"), f"{HIDDEN}@"),
    (("-u", "--user"), re.compile(
        r"((?:\s|^)(?:-u|--user)[ =]{0,4}[\"']?[^\s:\"']{1,128}:)[^\s\"']++"), rf"\1{HIDDEN}"),
    (("login",), re.compile(r"(\blogin[ \t]{1,8}\S{1,128}[ \t]{1,8}password[ \t]{1,8})\S++"), rf"\1{HIDDEN}"),
    (("hooks.slack", "webhooks/"), re.compile(
        r"(hooks\.slack\.com/services/|/api/webhooks/)[\w/-]++"), rf"\1{HIDDEN}"),
    (("eyj",), re.compile(
        r"(?<![A-Za-z0-9_-])(eyJ)[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]*+)?"), rf"\1{HIDDEN}"),
    (("_", "-", "sg."), re.compile(
        r"(?<![A-Za-z0-9])((?:hf|gh[pousr]|github_pat|npm|r8|gsk|dckr_pat)_|(?:sk|rk)[-_]"
        r"|(?:glpat|xox[a-z]|pypi|nvapi)-|SG\.)"
        r"[A-Za-z0-9_.-]{16,}+"), rf"\1{HIDDEN}"),
    (("akia", "asia", "aiza", "ya29."), re.compile(
        r"(?<![A-Za-z0-9])(AKIA|ASIA|AIza|ya29\.)[A-Za-z0-9_-]{12,}+"), rf"\1{HIDDEN}"),
)  # fmt: skip


def hide_forms(text: str) -> str:
    """Return text, uncoloured, with everything hidden that looks like a secret by its name or its beginning."""
    text = uncoloured(text)
    lowered = text.lower()
    for needles, pattern, put in _FORMS:
        if any(needle in lowered for needle in needles):
            text = pattern.sub(put, text)
    return text
