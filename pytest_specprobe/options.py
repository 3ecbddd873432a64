"""Command line options and their ini twins.

Imported at every pytest start: standard library and pytest only.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_specprobe.settings import ACROSS, BOOTED, Across, Baseline, Device, Settings
from pytest_specprobe.urls import url_problem

if TYPE_CHECKING:
    from pytest_specprobe.profiles import Speculation

DRAFTER = "specprobe_drafter"
WORKERS_LEFT_OUT = pytest.StashKey[bool]()
# name, metavar, help. Every value is text here and read once, in Settings.
_VALUES = (
    ("profiles", "FILE", "TOML file of targets and drafters, read last (default: specprobe.toml, if there)"),
    ("report", "DIR", "where report.json and server logs go (default: .specprobe)"),
    ("server", "URL", "probe a server that already runs, instead of booting one; it is never stopped"),
    (
        "baseline",
        "URL|NUMBER|stored|boot|alternating|none",
        "speed without speculation (default: the profile's)",
    ),
    ("workload", "NAME|FILE.jsonl", "prompt set (default: the profile's)"),
    ("concurrency", "N[,N...]", "requests in flight during the throughput pass (default: 1)"),
    ("temperature", "T", "measure acceptance at this temperature too, reported apart from the verdict"),
    (
        "sweep",
        "STEPS/TOPK/TOKENS[,...]",
        "measure these settings too, in turns: all chains (topk 1) on one boot, others on one each",
    ),
    ("device", "auto|cuda|cpu", "where owned servers run; auto never puts a big model on a CPU (default: auto)"),
    ("python", "PATH", "interpreter that holds SGLang (default: the one that runs pytest)"),
    (
        "boot-timeout",
        "S",
        "seconds to wait for a server, twice that while it compiles (default: the profile's, 1800)",
    ),
    (
        "across",
        "drafter|engine|flags[,...]",
        "hold max_regression against earlier runs that differ in these parts, where there are none of the same key",
    ),
)
_ABOUT_BOOTS = ("--specprobe-device", "--specprobe-python", "--specprobe-boot-timeout", "--specprobe-blind")
_FLAGS = (
    ("static", "check files only: no boot, no GPU, no verdict"),
    ("plan", "print the resolved profile, the checks and the server commands, then stop with exit code 0"),
)


def add_options(parser: pytest.Parser) -> None:
    """Register every option and its ini twin ``specprobe_*``."""
    group = parser.getgroup(
        "specprobe",
        "probe an EAGLE-3 drafter on its target with a real SGLang server. Write --option=VALUE: a value "
        "in a word of its own is taken for a test path when pytest looks for its rootdir",
    )
    group.addoption(
        "--specprobe-drafter",
        action="append",
        dest=DRAFTER,
        metavar="NAME[,NAME]",
        help="drafter profile(s) to probe; repeatable. Without test paths, collects the shipped suite.",
    )
    parser.addini(DRAFTER, "drafter profiles to probe", type="args", default=[])
    for name, metavar, text in _VALUES:
        group.addoption(f"--specprobe-{name}", dest=_dest(name), metavar=metavar, default=None, help=text)
        parser.addini(_dest(name), text, default=None)
    for name, text in _FLAGS:
        group.addoption(f"--specprobe-{name}", dest=_dest(name), action="store_true", default=None, help=text)
        parser.addini(_dest(name), text, type="bool", default=False)
    blind = "boot a third server whose drafter cannot see the target's hidden states (default: the profile's)"
    group.addoption(
        "--specprobe-blind", dest="specprobe_blind", action="store_const", const="yes", default=None, help=blind
    )
    group.addoption(
        "--no-specprobe-blind", dest="specprobe_blind", action="store_const", const="no", help="skip that control"
    )
    parser.addini("specprobe_blind", f"yes or no: {blind}", default=None)


def read_settings(config: pytest.Config) -> Settings:
    """Return what the user asked for.

    :raises pytest.UsageError: naming every unusable value at once.
    """
    problems = [f"--specprobe-{name}: the value is empty" for name, *_ in _VALUES if _empty(config, name)]
    here = config.invocation_params.dir
    text = {name: _text(config, name) for name, *_ in _VALUES}
    settings = Settings(
        drafters=drafters(config),
        root=config.rootpath,
        profiles=_path(config, "profiles"),
        report=_path(config, "report") or here / ".specprobe",
        server=_url("server", text["server"], problems),
        baseline=_baseline(text["baseline"], problems),
        blind=_tristate(config, problems),
        workload=text["workload"],
        concurrency=_concurrency(text["concurrency"], problems),
        temperature=_positive("temperature", text["temperature"], problems),
        sweep=_sweep(text["sweep"], problems),
        static=_flag(config, "static"),
        device=_device(text["device"], problems),
        python=_path(config, "python"),
        boot_timeout_s=_positive("boot-timeout", text["boot-timeout"], problems),
        across=_across(text["across"], problems),
    )
    if settings.profiles is not None and not settings.profiles.is_file():
        problems.append(f"--specprobe-profiles: no such file: {settings.profiles}")
    if settings.server is not None:
        problems.extend(_of_no_use_beside_a_server(config))
    if problems:
        raise pytest.UsageError("\n".join(problems))
    return settings


def drafters(config: pytest.Config) -> tuple[str, ...]:
    """Return the drafters named on the command line, else in the ini file; each once, in order.

    :raises pytest.UsageError: if none is named, and the command line asks for a probe all the same: a variable that
        is not set would turn the gate into a run of the project's own tests.
    """
    typed: list[str] | None = config.getoption(DRAFTER, default=None)
    named = config.getini(DRAFTER) if typed is None else typed
    parts = (part.strip() for entry in named for part in entry.split(","))
    found = tuple(dict.fromkeys(part for part in parts if part))
    if typed is not None and not found:
        raise pytest.UsageError(f"--specprobe-drafter={','.join(typed)} names no drafter; is a variable not set?")
    lost = [] if found else _typed(config)
    if lost:
        raise pytest.UsageError(f"{', '.join(lost)} needs --specprobe-drafter=NAME: without one, nothing is probed")
    return found


def wants_plan(config: pytest.Config) -> bool:
    """Tell whether only the plan is asked for."""
    return _flag(config, "plan")


def attaches(config: pytest.Config) -> bool:
    """Tell whether a server that already runs is to be probed."""
    return _text(config, "server") is not None


def wants_workers(config: pytest.Config) -> bool:
    """Tell whether pytest-xdist is to run the tests elsewhere, by whichever of its options, or already does."""
    option = config.option
    asked = getattr(option, "numprocesses", None) or getattr(option, "tx", None)
    return bool(asked) or getattr(option, "dist", "no") != "no" or hasattr(config, "workerinput")


def leave_workers_out(config: pytest.Config) -> None:
    """Keep pytest-xdist from handing the tests to workers, each of which would measure the same server at once."""
    if wants_workers(config):
        config.option.numprocesses, config.option.tx, config.option.dist = 0, [], "no"
        config.stash[WORKERS_LEFT_OUT] = True


def _typed(config: pytest.Config) -> list[str]:
    """Return the names of our options that this very command line has: neither ini values nor ``addopts``."""
    words = (str(word).partition("=")[0] for word in config.invocation_params.args)
    return list(dict.fromkeys(word for word in words if word.startswith(("--specprobe-", "--no-specprobe-"))))


def _of_no_use_beside_a_server(config: pytest.Config) -> Iterator[str]:
    baseline = _text(config, "baseline")
    for option in _typed(config):
        if option == "--specprobe-baseline" and baseline in BOOTED:
            yield (
                f"--specprobe-baseline={baseline} boots a server, and beside --specprobe-server no server is booted: "
                "give the URL of one without speculation, tok/s, or none"
            )
        elif option in _ABOUT_BOOTS:
            yield f"{option} is about servers that are booted, and beside --specprobe-server no server is: drop one"


def _empty(config: pytest.Config, name: str) -> bool:
    return bool(config.getoption(_dest(name), default=None) == "")


def _dest(name: str) -> str:
    return "specprobe_" + name.replace("-", "_")


def _text(config: pytest.Config, name: str) -> str | None:
    value: Any = config.getoption(_dest(name), default=None)
    if value is None:
        value = config.getini(_dest(name))
    return str(value) if value not in (None, "") else None


def _flag(config: pytest.Config, name: str) -> bool:
    value = config.getoption(_dest(name), default=None)
    return bool(config.getini(_dest(name)) if value is None else value)


def _tristate(config: pytest.Config, problems: list[str]) -> bool | None:
    text = _text(config, "blind")
    if text is not None and text not in ("yes", "no"):
        problems.append(f"specprobe_blind must be yes or no, not {text!r}")
    return None if text is None else text == "yes"


def _path(config: pytest.Config, name: str) -> Path | None:
    """Return a path: typed, it starts at the current folder; in an ini file, at the project's."""
    text = _text(config, name)
    typed = config.getoption(_dest(name), default=None) is not None
    here = config.invocation_params.dir if typed else config.rootpath
    # absolute, not resolved: an interpreter of a virtual environment is a link that must stay one
    return None if text is None else (here / Path(text).expanduser()).absolute()


def _url(option: str, text: str | None, problems: list[str]) -> str | None:
    problem = None if text is None else url_problem(text)
    if problem:
        problems.append(f"--specprobe-{option}: {problem}")
    return text


def _baseline(text: str | None, problems: list[str]) -> Baseline | None:
    if text is None or text in (*BOOTED, "none"):
        return text
    if any(mark in text for mark in ":/@?#"):
        return _url("baseline", text, problems)
    return _positive("baseline", text, problems)


def _positive(option: str, text: str | None, problems: list[str]) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        problems.append(f"--specprobe-{option}: {text!r} is not a positive number")
    return value


def _concurrency(text: str | None, problems: list[str]) -> tuple[int, ...]:
    try:
        levels = tuple(dict.fromkeys(int(part) for part in (text or "1").split(",")))
    except ValueError:
        levels = (0,)
    if min(levels) < 1:
        problems.append(f"--specprobe-concurrency: {text!r} is not a list of whole numbers from 1 on")
    return levels


def _across(text: str | None, problems: list[str]) -> tuple[Across, ...]:
    if text is None:
        return ()
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    known = ", ".join(ACROSS)
    if not parts:
        problems.append(f"--specprobe-across: {text!r} names no part of {known}")
    problems += [f"--specprobe-across: {part!r} is not one of {known}" for part in parts if part not in ACROSS]
    return tuple(part for name in parts for part in ACROSS if part == name)


def _sweep(text: str | None, problems: list[str]) -> "tuple[Speculation, ...]":
    if text is None:
        return ()
    # pydantic: loaded only where a drafter is named and a sweep asked for
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    from pytest_specprobe.profiles import Speculation  # noqa: PLC0415 - see above

    settings = []
    for part in text.split(","):
        try:
            steps, topk, tokens = (int(number) for number in part.split("/"))
            settings.append(Speculation(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens))
        except ValidationError as error:
            reasons = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
            problems.append(f"--specprobe-sweep: {part}: {reasons}")
        except ValueError:
            problems.append(f"--specprobe-sweep: {part!r} is not STEPS/TOPK/TOKENS, such as 3/1/4")
    return tuple(settings)


def _device(text: str | None, problems: list[str]) -> Device:
    match text or "auto":
        case "auto" | "cuda" | "cpu" as device:
            return device
        case other:
            problems.append(f"--specprobe-device: {other!r} is not auto, cuda or cpu")
            return "auto"
