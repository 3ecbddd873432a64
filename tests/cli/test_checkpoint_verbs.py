"""``specprobe inspect`` and ``specprobe diff`` as a user meets them: output, exit codes, schemas, start-up cost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import pytest_specprobe.checkpoint
from pytest_specprobe.cli import main
from tests.support import checkpoint_builder as build
from tests.support.checkpoint_faults import MUTATIONS, Mutation

SCHEMAS = Path(pytest_specprobe.checkpoint.__file__).with_name("schema")


def validate(document: Any, name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    return build.llama().save(tmp_path / "drafter")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return build.target().save(tmp_path / "target")


def test_a_clean_drafter_is_one_line_and_exit_0(
    drafter: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(drafter), "--target", str(target)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    assert "0 errors, 0 warnings" in out


def test_a_fault_is_told_with_its_next_step_and_exit_1(drafter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = build.llama()
    del made.tensors["lm_head.weight"]
    made.save(drafter)
    assert main(["inspect", str(drafter)]) == 1
    out = capsys.readouterr().out
    assert "FAULT  head.missing  [drafter-file]" in out
    assert "accept length exactly 1.00" in out
    assert "next" in out


def test_what_a_config_says_is_shown_and_not_obeyed(drafter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((drafter / "config.json").read_text()) | {"architectures": ["\x1b[2JLlama"]}
    (drafter / "config.json").write_text(json.dumps(config))
    main(["inspect", str(drafter), "--all"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_warning_alone_is_exit_0(drafter: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(drafter), "--target", str(target), "--context-length", "9000"]) == 0
    assert "warn   rope.positions" in capsys.readouterr().out


def test_all_lists_passing_checks_too(drafter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(drafter), "--all"]) == 0
    assert "pass   vocab.range" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "finding"),
    [
        (["--algorithm", "EAGLE"], "config.eagle-not-eagle3"),
        (["--sglang", "0.5.11"], "config.engine-version"),
        (["--parent", "parent"], "vocab.rebuilt-under-head"),
    ],
)
def test_launch_facts_can_be_given(
    extra: list[str],
    finding: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = build.llama()
    made.rename(lambda name: name.replace("midlayer.", "layers.0."))
    made.save(tmp_path / "drafter")
    made.tensors["d2t"], made.tensors["t2d"] = build.tables(np.arange(build.DRAFT))
    made.save(tmp_path / "parent")
    assert main(["inspect", "drafter", "--json", *extra]) == 1
    assert [f["id"] for f in json.loads(capsys.readouterr().out)["findings"]] == [finding]


@pytest.mark.parametrize("mutation", MUTATIONS[::4], ids=lambda m: m.name.replace(" ", "-"))
def test_json_is_the_published_schema(mutation: Mutation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = (mutation.base or build.llama)()
    path, target, _ = mutation.save(tmp_path, drafter=made, target=build.target())
    code = main(["inspect", str(path), "--target", str(target), "--json"])
    document = json.loads(capsys.readouterr().out)
    validate(document, "inspect")
    assert document["drafter"] == str(path)
    assert code == int(any(f["severity"] == "error" for f in document["findings"]))


def test_a_clean_drafters_json_has_no_finding(drafter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(drafter), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"schema": 1, "drafter": str(drafter), "target": None, "findings": []}


def test_diff_counts_and_validates(drafter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = build.llama(1).save(tmp_path / "other")
    assert main(["diff", str(drafter), str(other), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document, "diff")
    assert document["entries"] == build.DRAFT
    assert main(["diff", str(drafter), str(other)]) == 0
    assert f"{document['differing']} of {build.DRAFT} entries differ" in capsys.readouterr().out


def test_diff_fails_for_a_head_kept_under_a_rebuilt_mapping(
    drafter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = build.llama()
    made.tensors["d2t"], made.tensors["t2d"] = build.tables(np.arange(build.DRAFT))
    assert main(["diff", str(drafter), str(made.save(tmp_path / "b")), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document, "diff")
    assert [f["id"] for f in document["findings"]] == ["vocab.rebuilt-under-head"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "nowhere"],
        ["inspect", "drafter", "--target", "nowhere"],
        ["inspect", "drafter", "--parent", "nowhere"],
        ["diff", "drafter", "nowhere"],
        ["history", "nowhere"],
    ],
)
def test_unusable_arguments_are_one_error_and_exit_2(
    arguments: list[str], drafter: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(drafter.parent)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nowhere" in err
    assert "next:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["inspect"],
        ["inspect", "x", "--context-length", "many"],
        ["inspect", "x", "--context-length", "-5"],
        ["inspect", "x", "--sglang", "latest"],
        ["no-such-verb"],
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: specprobe" in capsys.readouterr().err


def test_a_profiles_target_name_is_understood(
    drafter: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.target().save(tmp_path / "my-target")
    (tmp_path / "specprobe.toml").write_text('[targets.mine]\nmodel = "my-target"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(drafter), "--target", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == str(tmp_path / "my-target")


def test_inspect_imports_numpy_and_nothing_heavier(drafter: Path, target: Path) -> None:
    script = (
        "import sys; from pytest_specprobe.cli import main; "
        f"code = main(['inspect', {str(drafter)!r}, '--target', {str(target)!r}]); "
        "heavy = {'torch', 'transformers', 'sglang', 'pydantic', 'httpx', 'pytest', 'rich', 'huggingface_hub'}; "
        "assert code == 0; assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_command_ends_quietly_when_its_reader_goes(drafter: Path) -> None:
    command = [sys.executable, "-c", "import sys; from pytest_specprobe.cli import main; sys.exit(main())"]
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [*command, "inspect", str(drafter), "--all"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (2, "")
