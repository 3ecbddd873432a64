"""Prompt sets: the built-in ones, user files, and every way a file can be wrong."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.measure.workloads import DOMAINS, load_workload, looks_random

LINES = [{"prompt": f"Tell me what a {name} does all day."} for name in ("cat", "dog", "bee", "crow")]


def write(folder: Path, *lines: object) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "mine.jsonl").write_text(text, encoding="utf-8")
    return "mine.jsonl"


def test_the_default_set_has_five_domains_of_at_least_24() -> None:
    workload = load_workload("default", root=Path())
    counts = Counter(chat.workload for chat in workload.chats)
    assert set(counts) == set(DOMAINS)
    assert min(counts.values()) >= 24
    for domain in DOMAINS:
        assert {c.id for c in load_workload(domain, root=Path()).chats} <= {c.id for c in workload.chats}


def test_a_part_keeps_every_domain() -> None:
    part = load_workload("default", root=Path()).first(24)
    assert sorted(Counter(chat.workload for chat in part.chats).values()) == [4, 5, 5, 5, 5]
    assert part.digest != load_workload("default", root=Path()).digest
    assert load_workload("code", root=Path()).first(10**6) == load_workload("code", root=Path())


def test_a_users_file(tmp_path: Path) -> None:
    chat = {"id": "x", "workload": "birds", "messages": [{"role": "system", "content": "Be brief."},
                                                         {"role": "user", "content": "What is a kite?"}]}  # fmt: skip
    workload = load_workload(write(tmp_path, *LINES, "", chat), root=tmp_path)
    assert workload.name == "mine"
    assert [c.workload for c in workload.chats] == ["mine"] * 4 + ["birds"]
    assert workload.chats[-1].text == "Be brief.\nWhat is a kite?"
    seen = workload.prompts(lambda messages: tuple(len(m["content"]) for m in messages))
    assert seen[-1].input_ids == (9, 15)
    assert seen[0].id == workload.chats[0].id


def test_ids_follow_the_text_and_the_digest_follows_everything(tmp_path: Path) -> None:
    first = load_workload(write(tmp_path, *LINES), root=tmp_path)
    turned = load_workload(write(tmp_path, *LINES[::-1]), root=tmp_path)
    assert {c.id for c in first.chats} == {c.id for c in turned.chats}
    assert first.digest != turned.digest
    assert first == load_workload(write(tmp_path, *LINES), root=tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ([1], "object is wanted"),
        ({"promt": "a cat"}, "did you mean 'prompt'"),
        ({"prompt": "a", "input_ids": [1]}, "bypass the chat template"),
        ({"prompt": "a", "messages": []}, "either messages or prompt"),
        ({"id": "x"}, "either messages or prompt"),
        ({"prompt": "  "}, "not empty"),
        ({"prompt": 3}, "not empty"),
        ({"prompt": "a", "id": ""}, "not empty"),
        ({"messages": []}, "not empty"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "role 'tool'"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "not empty"),
        ({"messages": [{"role": "user", "text": "a"}]}, "role and content"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "the user's"),
        (LINES[0], "occurs twice"),
        ({"id": "other", **LINES[1]}, "same text"),
    ],
)
def test_each_fault_is_named(tmp_path: Path, line: object, words: str) -> None:
    name = write(tmp_path, *LINES, line)
    with pytest.raises(ProfileError, match=words) as caught:
        load_workload(name, root=tmp_path)
    assert not isinstance(line, str) or "mine.jsonl:5" in caught.value.problems[0]


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    name = write(tmp_path, "{", {"id": "x"}, *LINES)
    with pytest.raises(ProfileError) as caught:
        load_workload(name, root=tmp_path)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("name", "words"), [("defualt", "'default'"), ("zzz", "known: "), ("no.jsonl", "does not exist")]
)
def test_an_unknown_workload(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        load_workload(name, root=tmp_path)


def test_one_prompt_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="at least 24"):
        load_workload(write(tmp_path, LINES[0]), root=tmp_path)


def test_random_tokens_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    pieces = ["".join(rng.choice(letters, size=rng.integers(2, 8))) for _ in range(20_000)]
    lines = [{"prompt": " ".join(rng.choice(pieces, size=60))} for _ in range(24)]
    with pytest.raises(ProfileError, match="random tokens"):
        load_workload(write(tmp_path, *lines), root=tmp_path)


@pytest.mark.parametrize("domain", DOMAINS)
def test_real_text_is_not_random_in_any_language(domain: str) -> None:
    chats = load_workload(domain, root=Path()).chats
    assert not looks_random(chat.text for chat in chats)
    assert not looks_random(chat.text for chat in chats[:12])
