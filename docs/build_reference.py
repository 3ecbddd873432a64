"""Make docs/reference.md anew from the code: ``python -m docs.build_reference > docs/reference.md``.

Nothing in it is written by hand but the headings, so that it cannot say what the code does not do; a test holds the
file against this module.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pytest_specprobe import cli, hookspecs, options, plugin
from pytest_specprobe.cli.parser import new_parser
from pytest_specprobe.profiles import Drafter, Gate, Speculation, Target
from pytest_specprobe.report import exit_code as exits
from pytest_specprobe.report.read import schema_text
from pytest_specprobe.report.render.text import VERDICT_SAYS
from pytest_specprobe.server import child_environment

_HEAD = """# Reference

Made from the code (`python -m docs.build_reference > docs/reference.md`), not by hand. [checks.md](checks.md) lists
the static checks.
"""
_CODES = (
    (exits.PASSED, "the gate passed"),
    (exits.FAILED, "the gate or a check failed"),
    (exits.INCONCLUSIVE, "the gate is inconclusive: the intervals still allow both"),
    (
        exits.IMPOSSIBLE,
        (
            "nothing could be measured: files, device or SGLang missing, or the boot failed; or the report could not "
            "be written, or a server would not end"
        ),
    ),
    ("2, 3, 4", "pytest's own: interrupted, internal error, usage"),
)


class Collected:
    """What the plugin registers, taken down instead."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def getgroup(self, *_: object) -> "Collected":
        """Return the place itself: all options are of one group."""
        return self

    def addoption(self, name: str, **settings: Any) -> None:
        """Take down one option: how it is typed, its ini name, its help."""
        shown = f"{name}={settings['metavar']}" if settings.get("metavar") else name
        self.rows.append((shown, str(settings.get("dest", "")), str(settings.get("help", ""))))

    def addini(self, *_: object, **__: object) -> None:
        """Ini twins have the option's ``dest`` as their name."""


def reference() -> str:
    """Return the whole document."""
    parts = [
        _HEAD,
        *_options(),
        *_profiles(),
        *_environment(),
        *_codes(),
        *_verdicts(),
        *_fixtures(),
        *_hooks(),
        *_verbs(),
        *_report(),
    ]
    return "\n".join(parts) + "\n"


def _options() -> Iterator[str]:
    found = Collected()
    options.add_options(found)  # type: ignore[arg-type]  # it asks for nothing but these three methods
    yield "## pytest options\n"
    yield (
        "Write `--option=VALUE`. A value in a word of its own is taken for a test path where pytest looks for its "
        "rootdir: with `/shared/out` after `--specprobe-report`, `/shared/pytest.ini` is read.\n"
    )
    yield "The ini name goes under `[tool.pytest]` in pyproject.toml, or into pytest.ini.\n"
    yield from _table(("option", "ini", "what"), ((f"`{o}`", f"`{ini}`", text) for o, ini, text in found.rows))


def _profiles() -> Iterator[str]:
    yield "\n## Profiles\n"
    yield (
        "Read from the built-in catalog, then `[tool.specprobe]` of pyproject.toml, then `specprobe.toml`, then the "
        "file of `--specprobe-profiles`; later ones win, key by key. Unknown keys are errors.\n"
    )
    for title, model in (
        ("[targets.NAME]", Target), ("[drafters.NAME]", Drafter), ("speculation", Speculation), ("gate", Gate),
    ):  # fmt: skip
        yield f"### `{title}`\n"
        yield _prose(model) + "\n"
        rows = ((f"`{name}`", _type(field.annotation), _default(field)) for name, field in model.model_fields.items())
        yield from _table(("key", "type", "default"), rows)
        yield ""


def _environment() -> Iterator[str]:
    yield "## The environment of a server\n"
    yield (
        "Of the variables of the test run a server gets these and no other; `PREFIX_*` is every name that begins so. "
        "Nothing named as a secret passes, and nothing that forges a measurement. Empty and relative entries of "
        "`PYTHONPATH` are left out. `env_pass` of the target's profile passes more, by name or `PREFIX_*`; a secret, "
        "`SGLANG_GRPC_PORT`, `SGLANG_HTTP_SERVER_APP_PATH` and the packages of `SGLANG_EXTERNAL_*` only by their "
        "whole names. The report lists what did not pass under `scrubbed`.\n"
    )
    rows = [
        *child_environment.GROUPS.items(),
        ("a hub id as model", "HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN HUGGINGFACE_TOKEN, proxies"),
        *((f"a model at {scheme}://", f"{names}, proxies") for scheme, names in child_environment.STORES.items()),
    ]
    yield from _table(("for", "variables"), ((what, f"`{names}`") for what, names in rows))
    yield (
        "\nA boot sets `TMPDIR` and the working directory to a folder of its own, `PYTHONSAFEPATH=1`, and, where it "
        "is not given, `TORCHINDUCTOR_CACHE_DIR` to a private folder of the user's cache. `HF_MODULES_CACHE` is one "
        "too, and without `trust_remote_code` it is `/dev/null`, so that no code of a checkpoint can be loaded. A "
        "folder of compiled code or of modules that others may write is refused.\n"
    )


def _codes() -> Iterator[str]:
    yield "## Exit codes of pytest\n"
    yield from _table(("code", "meaning"), ((str(code), text) for code, text in _CODES))


def _verdicts() -> Iterator[str]:
    yield "\n## Verdicts\n"
    yield from _table(("verdict", "says"), ((f"`{v}`" if v else "none", text) for v, text in VERDICT_SAYS.items()))


def _fixtures() -> Iterator[str]:
    yield "\n## Fixtures\n"
    yield "All of session scope, one value per drafter.\n"
    found = {name: value for name, value in vars(plugin).items() if name.startswith("specprobe_")}
    yield from _table(("fixture", "gives"), ((f"`{name}`", _prose(value)) for name, value in found.items()))


def _hooks() -> Iterator[str]:
    yield "\n## Hooks\n"
    for name, hook in vars(hookspecs).items():
        if name.startswith("pytest_specprobe_"):
            yield f"### `{name}{inspect.signature(hook)}`\n".replace("'", "").replace('"', "")
            yield re.sub(r"\n::\n", "\n", _prose(hook)).replace("::\n", ":\n") + "\n"


def _verbs() -> Iterator[str]:
    yield "## The `specprobe` command\n"
    for name, verb in verbs().items():
        yield f"### `specprobe {name}`\n"
        yield f"{verb.description}\n"
        rows = [(f"`{_shown(action)}`", action.help or "") for action in verb._actions if action.dest != "help"]  # noqa: SLF001 - argparse lists them nowhere else
        yield from _table(("argument", "what"), rows)
        yield ""


def verbs() -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of every verb."""
    _, places = new_parser()
    for verb in cli.VERBS:
        import_module(f"{cli.__name__}.{verb}").add(places)
    return dict(places.choices)


def _report() -> Iterator[str]:
    yield "## report.json\n"
    schema = json.loads(schema_text())
    yield f"{schema['description']} `specprobe report --schema` prints its JSON Schema.\n"
    yield from _table(("field", "what"), _fields(schema["properties"], ""))
    for name, part in schema["$defs"].items():
        yield f"\n### {name}\n"
        if "description" in part:
            yield part["description"] + "\n"
        yield from _table(("field", "what"), _fields(part["properties"], ""))


def _fields(properties: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, part in properties.items():
        yield f"`{prefix}{name}`", ". ".join(text for text in (_kind(part), part.get("description", "")) if text)
        if "properties" in part:
            yield from _fields(part["properties"], f"{prefix}{name}.")


def _kind(part: Mapping[str, Any]) -> str:
    if "$ref" in part:
        return f"[{(name := part['$ref'].rpartition('/')[2])}](#{name})"
    if "anyOf" in part:
        return " or ".join(_kind(one) for one in part["anyOf"])
    if "enum" in part:
        return ", ".join(f"`{json.dumps(value)}`" for value in part["enum"])
    kinds = part.get("type", "")
    shown = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if part.get("items"):
        return f"list of {_kind(part['items'])}" + (" or null" if isinstance(kinds, list) else "")
    if isinstance(part.get("additionalProperties"), dict) and part["additionalProperties"]:
        return f"{shown} of {_kind(part['additionalProperties'])}"
    return shown


def _table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    yield from ("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows)


def _prose(thing: Callable[..., Any] | type[BaseModel]) -> str:
    return inspect.cleandoc(thing.__doc__ or "").replace("``", "`")


def _type(annotation: Any) -> str:
    """Return a type as a person writes it in TOML: bounds and the like are said in the prose."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0])
    if origin is Literal:
        return " or ".join(json.dumps(value) for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in inner if one is not type(None))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is Mapping:
        return f"table of {_type(inner[1])}"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(annotation, "table")


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required" if field.default_factory is None else "`{}`"
    if isinstance(field.default, BaseModel) or field.default is None:
        return ""
    return f"`{json.dumps(field.default)}`"


def _shown(action: argparse.Action) -> str:
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.choices:
        return f"{name} {'|'.join(map(str, action.choices))}"
    return f"{name} {action.metavar}" if action.option_strings and action.metavar else name


if __name__ == "__main__":
    sys.stdout.write(reference())
