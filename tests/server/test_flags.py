"""What ``server_args`` may hold, against the parser of the installed SGLang."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.server.absolute_paths import absolute_words
from pytest_specprobe.server.flags import LOADING, OWNED, problems
from pytest_specprobe.server.spec import ServerSpec

LOADS = sorted(set(LOADING) - {"--model-impl"})


def refused(*words: str, trust_remote_code: bool = False) -> str:
    """What a server with these flags is refused with."""
    with pytest.raises(ProfileError) as raised:
        ServerSpec(model="m", server_args=words, trust_remote_code=trust_remote_code)
    return "; ".join(raised.value.problems)


@pytest.mark.parametrize("flag", sorted(OWNED))
@pytest.mark.parametrize("trusted", [False, True])
def test_every_abbreviation_of_an_owned_flag_is_refused(flag: str, *, trusted: bool) -> None:
    for end in range(3, len(flag) + 1):
        for word in (flag[:end], f"{flag[:end]}=x"):
            assert "may not hold" in refused(word, "x", trust_remote_code=trusted)


def test_the_case_that_passed_is_refused_with_all_its_problems_at_once() -> None:
    said = refused("--trust-rem", "--hos", "::", "--forward-h=x")
    assert "--trust-rem, short for --trust-remote-code; it belongs to targets.NAME.trust_remote_code" in said
    assert "--hos, short for --host" in said
    assert "--forward-h, short for --forward-hooks, which imports and runs" in said


@pytest.mark.parametrize("flag", LOADS)
def test_what_loads_code_needs_the_trust_of_the_profile(flag: str) -> None:
    for word in {flag[:end] for end in range(len("--sidecar"), len(flag) + 1)} - {"--hicache-storage-backend"}:
        assert "trust_remote_code = true" in refused(word, "/some/value")
    assert problems((flag, "/some/value"), trust_remote_code=True) == ()


@pytest.mark.parametrize(
    ("words", "needs_trust"),
    [
        (("--model-impl", "transformers"), True),
        (("--model-impl=transformers",), True),
        (("--model-i", "mindspore"), True),
        (("--model-impl", "sglang"), False),
        (("--json-model-override-args", '{"num_hidden_layers": 2}'), False),
        (('--json-model-override-args={"num_hidden_layers": 2}',), False),
        (("--json-model-override-args", '{"a": [{"auto\\u005fmap": {}}]}'), True),
        (("--json-model", '{"auto_map": {}}'), True),
        (("--json-model-override-args", "[" * 100_000), True),
        (("--json-model-override-args", json.dumps(json.dumps({"auto_map": 1}))), True),
        (("--json-model-override-args",), True),
        (("--hicache-storage-backend-extra-config", '{"tp_lcm_size": 8}'), False),
        (("--hicache-storage-backend-extra-config", '{"module_path": "x"}'), True),
        (("--hicache-storage-backend-extra-config", "@/some/file.json"), True),
    ],
)
def test_some_flags_load_code_with_some_values_only(words: tuple[str, ...], *, needs_trust: bool) -> None:
    assert bool(problems(words, trust_remote_code=False)) is needs_trust
    assert problems(words, trust_remote_code=True) == ()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--mem-fraction-static 0.4", "write '--mem-fraction-static', '0.4'"),
        ("--mem-fraction-static\t0.4", "write '--mem-fraction-static', '0.4'"),
        ("--host ", "write '--host', 'VALUE'"),
        ("--trust_remote_code", "short for --trust-remote-code"),
        ("--", "leave it out"),
    ],
)
def test_a_word_that_sglang_cannot_take_is_refused_before_a_boot(word: str, says: str) -> None:
    assert says in refused(word)


@pytest.mark.parametrize(
    "words",
    [
        ("--mem-fraction-static", "0.4"),
        ("--mem-fraction-static=0.4", "--context-length", "1536", "--chat-template", "/a dir/x.jinja"),
        ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:5000", "--nccl-port", "7"),
        ("--base-gpu-id", "-1", "-h", "--speculative-accept-threshold-single=0.9"),
        ("--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"),
    ],
)
def test_what_is_sglangs_own_passes(words: tuple[str, ...]) -> None:
    assert problems(words, trust_remote_code=False) == ()


FLAGS = st.sampled_from([*OWNED, *LOADING])
WORDS = st.lists(st.one_of(st.text(max_size=12), FLAGS, st.from_regex(r"--[a-z]+=?\s?")))


@given(words=WORDS, trusted=st.booleans())
def test_any_words_are_taken_or_refused(words: list[str], *, trusted: bool) -> None:
    found = problems(words, trust_remote_code=trusted)
    assert all(problem.startswith("server_args ") for problem in found)
    assert set(problems(words, trust_remote_code=True)) <= set(problems(words, trust_remote_code=False))
    assert absolute_words(("py", *words), here=Path("/nowhere"))[0] == "py"
    assert len(absolute_words(("py", *words), here=Path("/nowhere"))) == len(words) + 1


ASK_NAMES = """
import argparse, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps([action.option_strings for action in parser._actions]))
"""


@pytest.fixture(scope="module")
def parser(needs_sglang: None) -> argparse.ArgumentParser:
    """A parser with the names of every flag of the installed SGLang, which is asked in a process of its own."""
    asked = subprocess.run([sys.executable, "-c", ASK_NAMES], capture_output=True, text=True, check=True)
    made = argparse.ArgumentParser(add_help=False)
    for names in json.loads(asked.stdout.splitlines()[-1]):
        made.add_argument(*names)
    return made


def names_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in parser._actions for name in action.option_strings if name.startswith("--")}


def test_sglang_has_no_other_name_for_a_guarded_flag(parser: argparse.ArgumentParser) -> None:
    names = names_of(parser)
    for guarded in (OWNED, LOADING):
        for flag in guarded.keys() & names.keys():
            assert set(names[flag].option_strings) <= guarded.keys(), flag


def test_no_whole_flag_of_sglang_is_taken_for_a_guarded_one(parser: argparse.ArgumentParser) -> None:
    others = names_of(parser).keys() - OWNED.keys() - LOADING.keys()
    assert len(others) > 400
    assert [name for name in sorted(others) if problems((name, "x"), trust_remote_code=False)] == []


def test_whatever_the_parser_completes_to_a_guarded_flag_is_refused(parser: argparse.ArgumentParser) -> None:
    names = names_of(parser)
    words = {name[:end] for name in names for end in range(3, len(name) + 1)} - names.keys()
    guarded = OWNED.keys() | LOADING.keys()
    completed = {word for word in words if guarded & {match[1] for match in parser._get_option_tuples(word)}}
    assert len(completed) > 100
    for word in completed:
        assert problems((word, "/x"), trust_remote_code=False), word
        assert problems((f"{word}=/x",), trust_remote_code=False), word
