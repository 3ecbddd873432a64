"""What is typed is used or refused: nothing is swallowed, and no secret is repeated."""

from pathlib import Path

import pytest

from pytest_specprobe import options

SERVER = "--specprobe-server=http://127.0.0.1:30000"


def refusal(pytester: pytest.Pytester, *args: str | Path) -> str:
    """Return what the options are refused with; empty if they are taken."""
    config = pytester.parseconfig(*args)
    try:
        if options.drafters(config):
            options.read_settings(config)
    except pytest.UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("typed", ["--specprobe-drafter=", "--specprobe-drafter=,", "--specprobe-drafter= , "])
def test_a_drafter_that_names_nothing_is_refused(pytester: pytest.Pytester, typed: str) -> None:
    pytester.makeini("[pytest]\nspecprobe_drafter = aq_k2\n")
    assert "names no drafter" in refusal(pytester, typed)


def test_a_run_without_a_drafter_does_not_end_green(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own():\n    pass\n")
    result = pytester.runpytest_subprocess("--specprobe-drafter=")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--specprobe-drafter= names no drafter*"])


@pytest.mark.parametrize(
    "typed", [("--specprobe-static",), ("--specprobe-server", "http://h:1"), (SERVER,), ("--no-specprobe-blind",)]
)
def test_another_option_without_a_drafter_is_refused(pytester: pytest.Pytester, typed: tuple[str, ...]) -> None:
    assert f"{typed[0].partition('=')[0]} needs --specprobe-drafter=NAME" in refusal(pytester, *typed)


def test_ini_values_without_a_drafter_are_not(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nspecprobe_static = true\nspecprobe_report = out\naddopts = --specprobe-device=cpu\n")
    assert refusal(pytester, Path("test_own.py")) == ""


@pytest.mark.parametrize("name", ["server", "baseline", "workload", "python", "concurrency", "sweep", "report"])
def test_an_empty_value_is_refused(pytester: pytest.Pytester, name: str) -> None:
    typed = ("--specprobe-drafter=aq_k2", f"--specprobe-{name}=")
    assert refusal(pytester, *typed) == f"--specprobe-{name}: the value is empty"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("engine", ""),
        ("flags,engine , drafter", ""),
        ("workload", "--specprobe-across: 'workload' is not one of drafter, engine, flags"),
        (
            "engine,hardware,x",
            (
                "--specprobe-across: 'hardware' is not one of drafter, engine, flags\n"
                "--specprobe-across: 'x' is not one of drafter, engine, flags"
            ),
        ),
        (",", "--specprobe-across: ',' names no part of drafter, engine, flags"),
        ("", "--specprobe-across: the value is empty"),
    ],
)
def test_what_a_run_is_compared_across(pytester: pytest.Pytester, typed: str, said: str) -> None:
    assert refusal(pytester, "--specprobe-drafter=aq_k2", f"--specprobe-across={typed}") == said


def test_across_has_an_ini_twin(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nspecprobe_across = flags,engine,engine\n")
    config = pytester.parseconfig("--specprobe-drafter=aq_k2")
    assert options.read_settings(config).across == ("flags", "engine")


@pytest.mark.parametrize("name", ["server", "baseline"])
@pytest.mark.parametrize(
    "url",
    ["http://me:hunter2@h:1", "me:hunter2@h:1", "http://h:1/?token=hunter2", "http://h:1/#hunter2", "hunter2@h"],
)
def test_a_url_with_a_secret_is_refused_without_repeating_it(pytester: pytest.Pytester, name: str, url: str) -> None:
    said = refusal(pytester, "--specprobe-drafter=aq_k2", f"--specprobe-{name}={url}")
    assert said.startswith(f"--specprobe-{name}: a URL with a password, a query or a fragment")
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["server", "baseline"])
@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://h:abc", "http://h:99999", "http://h:0", "http://", "ftp://h:1", "h:1", "http://a b"],
)
def test_a_url_that_is_none_is_refused(pytester: pytest.Pytester, name: str, url: str) -> None:
    said = refusal(pytester, "--specprobe-drafter=aq_k2", f"--specprobe-{name}={url}")
    assert said == f"--specprobe-{name}: {url!r} is no URL; write http://HOST:PORT"


@pytest.mark.parametrize("url", ["http://[::1]:30000", "https://host/prefix", "http://10.0.0.1:1/"])
def test_a_url_is_taken(pytester: pytest.Pytester, url: str) -> None:
    typed = ("--specprobe-drafter=aq_k2", f"--specprobe-server={url}", f"--specprobe-baseline={url}")
    assert refusal(pytester, *typed) == ""


def test_what_a_running_server_makes_useless_is_refused_all_at_once(pytester: pytest.Pytester) -> None:
    useless = (
        "--specprobe-baseline=boot", "--specprobe-device=cpu", "--specprobe-python=python", "--specprobe-blind",
        "--specprobe-boot-timeout=9",
    )  # fmt: skip
    said = refusal(pytester, "--specprobe-drafter=aq_k2", SERVER, *useless).splitlines()
    assert len(said) == len(useless)
    for line, option in zip(said, useless, strict=True):
        assert line.startswith(option.partition("=")[0])


@pytest.mark.parametrize("baseline", ["82", "none", "http://127.0.0.1:30001"])
def test_what_it_does_not_is_taken(pytester: pytest.Pytester, baseline: str) -> None:
    pytester.makeini("[pytest]\nspecprobe_device = cpu\nspecprobe_blind = yes\n")
    typed = (SERVER, f"--specprobe-baseline={baseline}", "--no-specprobe-blind")
    assert refusal(pytester, "--specprobe-drafter=aq_k2", *typed) == ""


@pytest.mark.parametrize("args", [("--dist=load", "--tx=2*popen"), ("--tx=popen",), ("--dist=loadscope",)])
def test_workers_are_refused_however_they_are_asked_for(pytester: pytest.Pytester, args: tuple[str, ...]) -> None:
    assert options.wants_workers(pytester.parseconfig("--specprobe-drafter=aq_k2", *args))
    assert not options.wants_workers(pytester.parseconfig("--specprobe-drafter=aq_k2"))


def test_paths_of_an_ini_file_start_at_the_project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini(
        "[pytest]\nspecprobe_profiles = ci/p.toml\nspecprobe_report = out\nspecprobe_python = bin/python\n"
    )
    profiles = pytester.mkdir("ci") / "p.toml"
    profiles.write_text("")
    sub = pytester.mkdir("sub")
    monkeypatch.chdir(sub)
    settings = options.read_settings(pytester.parseconfig("--specprobe-drafter=aq_k2"))
    assert (settings.profiles, settings.report, settings.python) == (
        profiles, pytester.path / "out", pytester.path / "bin" / "python",
    )  # fmt: skip
    typed = options.read_settings(pytester.parseconfig("--specprobe-drafter=aq_k2", "--specprobe-report=here"))
    assert typed.report == Path(sub / "here")
