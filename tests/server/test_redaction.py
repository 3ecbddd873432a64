"""The forms that secrets take in logs, commands and answers; and what looks like one and must stay readable."""

import pytest

from pytest_specprobe.server.redaction import redact_command, redact_text, redact_value
from pytest_specprobe.server.secret_forms import is_secret_name

S = "s3cr3tValue-0123456789"
BASIC = "dXNlcjpzM2NyM3RWYWx1ZQ"
FORMS = (
    f"['--api-key', '{S}', '--port', '1']",
    f'["--admin-api-key", "{S}"]',
    f"args: \"--api-key\", \"{S}\"",
    f"('python', '-m', 'x', '--hf-token', '{S}')",
    f"['--api-key',\n '{S}']",
    f"--api-key {S} --port 1",
    f"--api-key={S}",
    f"--password '{S} and more {S}'",
    f"--ssl-keyfile-password {S}",
    f"MY_TOKEN={S}",
    f"export X_SECRET={S}",
    f"export DB_PASS={S}; run",
    f"PGPASSWORD={S} psql",
    f"AWS_SECRET_ACCESS_KEY={S}",
    f"aws_secret_access_key = {S}",
    f"SECRET_KEY_1={S}",
    f"authorization: Basic {BASIC}{S}",
    f"Authorization: Basic {S}",
    f"Authorization: Bearer {S}",
    f"authorization: bearer {S}",
    f"AUTHORIZATION: BEARER {S}",
    f"Proxy-Authorization: Digest username=u, response={S}",
    f"'authorization': 'Token {S}'",
    f"Bearer {S}",
    f"bearer   {S}",
    f"x-api-key: {S}",
    f"X-Auth-Token: {S}",
    f"Cookie: a=b; session={S}; c=d",
    f"Set-Cookie: sid={S}; Path=/",
    f'{{"token": "{S}"}}',
    f'{{"accessToken" : "{S}", "x": 1}}',
    f'{{"client_secret":"{S}"}}',
    f'{{\\"password\\": \\"{S}\\"}}',
    f'{{"auth": "{S}"}}',
    f"{{'api_key': '{S}', 'port': 1}}",
    f"{{'password': ['{S}']}}",
    f"ServerArgs(api_key='{S}', port=1)",
    f"api_key={S!r}",
    f"api-key: {S}",
    f'api-key: "{S}"',
    f"apiKey => {S}",
    f"password='a b {S}'",
    f'password="a \\" b {S}"',
    f"password = 'it\\'s {S}'",
    f"passphrase: {S}",
    f"<password>{S}</password>",
    f"machine example.com login me password {S}",
    f"http://user:{S}@host/x",
    f"postgresql://user:{S}@host:5432/db",
    f"https://{S}@github.com/x.git",
    f"redis://:{S}@host",
    f"https://host/x?access_token={S}&page=2",
    f"https://host/x?sig={S}&se=1",
    f"https://s3/x?X-Amz-Credential=AKIA/1&X-Amz-Signature={S}",
    f"//registry.npmjs.org/:_authToken={S}",
    f"AccountKey={S};EndpointSuffix=core",
    f"curl -u me:{S} https://host",
    f"curl --user 'me:{S}' https://host",
    f"https://hooks.slack.com/services/T0/B0/{S}",
    f"\x1b[32mapi_key\x1b[0m=\x1b[1m{S}\x1b[0m",
    f"--api-key\x1b[0m {S}",
    "key AKIAIOSFODNN7EXAMPLE in use",
    "token hf_abcdefghijklmnopqrst",
    "sk-proj-abcdefghijklmnop0123",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "github_pat_0123456789abcdefghijABCDEFGHIJ",
    "glpat-0123456789abcdefghij",
    "xoxb-0123456789-abcdefghij",
    "nvapi-0123456789abcdefghij",
    "npm_0123456789abcdefghijABCDEFGHIJ",
    "AIzaSyA0123456789abcdefghij",
    "cookie eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF0123",
    f"-----BEGIN RSA PRIVATE KEY-----\n{BASIC}\n{S}\n-----END RSA PRIVATE KEY-----",
    f"'-----BEGIN PRIVATE KEY-----\\n{S}\\n-----END PRIVATE KEY-----'",
)  # fmt: skip
# What of each of those with a key of its own, known by its beginning, must be gone.
OWN = (
    "IOSFODNN7", "abcdefghijkl", "0123456789abcdef", "0123456789-abc", "eyJzdWIiOiIxIn0", "SyA0123", BASIC,
    "abcDEF0123", "abcdefghijklmnop0123",
)  # fmt: skip
READABLE = (
    "max_total_tokens=4096",
    "tokenizer_path='/models/x'",
    "token_ids=[1, 2, 3]",
    "input_token_ids: [1]",
    "TOKENIZERS_PARALLELISM=false",
    "num_tokens: 5",
    "31.4 tokens/s",
    "#token: 812, token usage: 0.01, #full token: 1234567",
    "Prefill batch, #new-token: 812, #cached-token: 0",
    "accepted token: 5",
    "eos_token='</s>'",
    "pad_token_id=0",
    '"unk_token": "<unk>"',
    "--speculative-token-map map.pt --port 1",
    "speculative_token_map=None",
    "--skip-tokenizer-init --context-length 4096",
    "api_key=None, admin_api_key=None",
    '"token": null',
    "password=False",
    "key: value, monkey=banana",
    "http://127.0.0.1:30000/health",
    "git+https://host/repo.git",
    "INFO: 127.0.0.1:5 - \"POST /v1/tokenize HTTP/1.1\" 200",
    "mail me@example.com",
    "Basic usage of the engine",
    "the bearer token is missing",
    "task-0123456789abcdef0123",
    "draft_token_num=4, num_draft_tokens=4",
    "secretary: Ann",
    "passed: 5, bypass=1",
    "kv_cache_dtype='auto', signal=9",
    "argument --tp: invalid int value: 'x'",
    "/models/hf_cache/models--org--name",
    "RuntimeError: passing key=value to forward()",
)  # fmt: skip


@pytest.mark.parametrize("text", FORMS)
def test_a_secret_in_the_wild_is_hidden(text: str) -> None:
    shown = redact_text(text)
    assert "***" in shown
    assert S not in shown
    assert not [own for own in OWN if own in shown]


@pytest.mark.parametrize("text", READABLE)
def test_what_only_looks_like_one_stays_readable(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("text", FORMS)
def test_hiding_twice_changes_nothing_more(text: str) -> None:
    assert redact_text(redact_text(text)) == redact_text(text)


def test_a_value_is_hidden_by_its_key_and_by_its_own_form() -> None:
    value = {"clientSecret": S, "X-Api-Key": S, "argv": ["--password", S], "note": f"token={S}", "eos_token": "</s>"}
    shown = redact_value([value])
    assert S not in repr(shown)
    assert shown[0]["eos_token"].startswith("</s>")


def test_a_command_keeps_its_words_and_loses_its_secrets() -> None:
    words = ("serve", "--hf-token", S, f"--password={S}", f"https://u:{S}@h", "--port", "1")
    assert redact_command(words) == ("serve", "--hf-token", "***", "--password=***", "https://***@h", "--port", "1")


@pytest.mark.parametrize(
    ("name", "secret"),
    [("accessToken", True), ("DB_PASS", True), ("X-Api-Key", True), ("Cookie", True), ("client_secret", True),
     ("eos_token", False), ("SSH_AUTH_SOCK", False), ("token_ids", False), ("compass", False), ("key", False)],
)  # fmt: skip
def test_names_of_secrets_in_other_spellings(name: str, *, secret: bool) -> None:
    assert is_secret_name(name) is secret
