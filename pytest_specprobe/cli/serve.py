"""``specprobe serve``: boot and prove a drafter's server, and hold it in the foreground for many probes."""

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specprobe.cli.parser import Verbs

if TYPE_CHECKING:
    from pytest_specprobe.probe.held_server import Serving
    from pytest_specprobe.settings import Settings

_LOOK_EVERY_S = 1.0
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "serve",
        help="boot and prove a drafter's server, and hold it for many probes",
        description="Stage, patch, boot and prove the server of a drafter, print the line that probes it, and stay "
        "in the foreground until Ctrl-C, SIGTERM or the end of the terminal; then end it and whatever it started. "
        "The key of the server is in a file that only this user can read, or, where SPECPROBE_API_KEY is set, is "
        "that. Exit 0 if told to end, 1 if a check or the proof failed or the server ended by itself, 2 for unusable "
        "arguments, 11 if it could not be booted.",
    )
    verb.add_argument("drafter", metavar="DRAFTER", help="profile name of the drafter")
    verb.add_argument("--baseline", action="store_true", help="hold the target's plain server too")
    verb.add_argument("--profiles", type=Path, metavar="FILE", help="TOML file of targets and drafters, read last")
    verb.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where to serve")
    verb.add_argument("--python", type=Path, metavar="PATH", help="interpreter that holds SGLang")
    verb.add_argument("--boot-timeout", type=float, metavar="S", help="seconds to wait for each server to get ready")
    verb.add_argument(
        "--report",
        type=Path,
        default=Path(".specprobe"),
        metavar="DIR",
        help="where the logs go (default: .specprobe)",
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object when ready")
    verb.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.errors import ProbeImpossible, ProfileError, SpecprobeError
    from pytest_specprobe.foreign import json_text
    from pytest_specprobe.probe.held_server import serving
    from pytest_specprobe.probe.plan.named_profiles import named_profiles
    from pytest_specprobe.profiles import load_profiles
    from pytest_specprobe.report import exit_code as exits
    from pytest_specprobe.secret import Secret, Variables
    from pytest_specprobe.server.attach import API_KEY_VARIABLE

    if arguments.boot_timeout is not None and not arguments.boot_timeout > 0:
        raise ProfileError(("--boot-timeout is not a positive number",), fix="give seconds, such as 1800")
    settings = _settings(arguments)
    profile = named_profiles(load_profiles(settings.root, extra=settings.profiles), settings)[arguments.drafter]
    api_key = Secret.variable(API_KEY_VARIABLE, Variables(os.environ))
    if api_key is not None and not _KEY.fullmatch(api_key.reveal()):
        raise ProfileError(
            (f"{API_KEY_VARIABLE} is no key for a server: 16 to 512 letters, digits and ._~+/=-",),
            fix=f"unset {API_KEY_VARIABLE}, and a random key is made",
        )
    try:
        with (
            _told_to_end() as ending,
            serving(profile, settings=settings, baseline=arguments.baseline, api_key=api_key, say=_say) as held,
        ):
            _out(json_text(held.to_json()) if arguments.json else _page(held))
            while (dead := held.dead) is None:
                time.sleep(_LOOK_EVERY_S)
            ending.begins()
            _say(f"the server at {dead.url} has ended by itself; the last lines of {dead.log_path}:")
            _say(dead.log_tail())
            return exits.FAILED
    except _Told:
        _say("nothing is left of them")
        return exits.PASSED
    except ProfileError:
        raise
    except SpecprobeError as error:
        _say(f"specprobe serve: {error}")
        return exits.IMPOSSIBLE if isinstance(error, ProbeImpossible) else exits.FAILED


def _settings(arguments: argparse.Namespace) -> "Settings":
    from pytest_specprobe.settings import Settings

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    return Settings(
        drafters=(arguments.drafter,),
        root=Path.cwd(),
        profiles=absolute(arguments.profiles),
        report=absolute(arguments.report) or Path.cwd(),
        server=None,
        baseline="boot" if arguments.baseline else "none",
        blind=False,
        workload=None,
        concurrency=(1,),
        temperature=None,
        sweep=(),
        static=False,
        device=arguments.device,
        python=absolute(arguments.python),
        boot_timeout_s=arguments.boot_timeout,
    )


def _page(held: "Serving") -> str:
    lines = [
        f"serving {held.profile.name} at {held.drafter.url} (pid {held.drafter.pid}, log {held.drafter.log_path})"
    ]
    if held.baseline is not None:
        lines.append(f"baseline at {held.baseline.url} (pid {held.baseline.pid}, log {held.baseline.log_path})")
    if held.key_file is None:
        lines.append("probe it with (SPECPROBE_API_KEY set as it is here):")
    else:
        lines.append(
            "probe it with (the key goes through the environment, from a file that only this user can read):"
        )
    lines += ["", f"  {held.command}", ""]
    if held.baseline is None:
        lines.append("without a baseline there is no break-even: add --specprobe-baseline TOK_S, or serve --baseline")
    return "\n".join([*lines, "Ctrl-C ends it"])


class _Told(BaseException):
    """A signal asked for the end."""


class _Ending:
    """Turns the first signal into the end of the block; what comes while the servers are ended changes nothing."""

    def __init__(self) -> None:
        self._begun = False

    def begins(self) -> None:
        """Take no signal from now on."""
        self._begun = True

    def __call__(self, number: int, _frame: object) -> None:
        if not self._begun:
            self._begun = True
            _say(f"{signal.Signals(number).name}: ending the servers")
            raise _Told
        _say("the servers are being ended; wait until nothing is left")


@contextlib.contextmanager
def _told_to_end() -> Iterator[_Ending]:
    ending = _Ending()
    numbers = [signal.SIGINT, signal.SIGTERM]
    # nohup means it: then the end of the terminal is not the end of the server.
    numbers += [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    before = {number: signal.signal(number, ending) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    from pytest_specprobe.foreign import printable

    # The terminal may be gone; the servers still have to be ended in order.
    with contextlib.suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


def _out(text: str) -> None:
    from pytest_specprobe.foreign import unmarked

    with contextlib.suppress(OSError):
        print(unmarked(text), flush=True)
