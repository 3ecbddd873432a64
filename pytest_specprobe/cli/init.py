"""``specprobe init``: write a commented profile for a drafter and a target directory."""

import argparse
from pathlib import Path

from pytest_specprobe.cli.parser import Verbs

_OUTPUT = Path("specprobe.toml")


def add(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "init",
        help="write a commented profile for a drafter and its target",
        description="Write specprobe.toml for a drafter and a target directory, filled with what their files say. "
        "Exit 0, 1 if the files have errors (it is written all the same), 2 for unusable arguments.",
    )
    verb.add_argument("drafter", type=Path, metavar="DRAFTER", help="directory of the drafter")
    verb.add_argument("target", type=Path, metavar="TARGET", help="directory of the target")
    verb.add_argument("--name", metavar="NAME", help="profile name of the drafter (default: its directory's)")
    verb.add_argument(
        "--output", default=str(_OUTPUT), metavar="FILE", help="where to; - prints it (default: specprobe.toml)"
    )
    verb.set_defaults(run=_init)


def _init(arguments: argparse.Namespace) -> int:
    from pytest_specprobe.checkpoint.files.read import load_drafter, load_target
    from pytest_specprobe.checkpoint.inspect import inspect
    from pytest_specprobe.errors import ProfileError
    from pytest_specprobe.findings import failed
    from pytest_specprobe.foreign import printable
    from pytest_specprobe.probe.profile_template import Pair, profile_name, scaffold
    from pytest_specprobe.profiles import NAMES, is_name
    from pytest_specprobe.server.gpu.nvidia_smi import gpus

    name = arguments.name or profile_name(arguments.drafter)
    if not is_name(name):
        raise ProfileError((f"--name {name!r} is no name: {NAMES}",), fix="give another --name")
    pair = Pair(
        drafter=load_drafter(arguments.drafter),
        target=load_target(arguments.target),
        findings=inspect(arguments.drafter, target=arguments.target),
        gpus=len(gpus()),
    )
    text = scaffold(pair, name=name, target_name=profile_name(arguments.target))
    if arguments.output == "-":
        print(text, end="")
    else:
        path = Path(arguments.output)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise ProfileError(
                (f"{path} is there already, and is left as it is",),
                fix="name another file with --output, or - to print",
            ) from None
        except OSError as error:
            raise ProfileError((f"{path} cannot be written: {error.strerror}",), fix="name another file") from error
        print(f"wrote {path}; next: pytest --specprobe-drafter={name} --specprobe-plan")
    wrong = failed(pair.findings)
    for finding in wrong if arguments.output != "-" else ():
        print(printable(f"FAULT  {finding.line()}"))
    return int(bool(wrong))
