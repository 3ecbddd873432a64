"""A pytest run to be killed: stages, boots, probes and tears down, and says where it is.

Not collected by its name; ``tests.support.kills`` runs it with ``VICTIM`` set to a JSON object: ``events`` (a file
that gets one line per step), ``root`` (a directory of its own), ``spec`` (fields of a ServerSpec), ``fault``
(what it does to itself, if anything).
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.measure.request import Prompt
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.staging import stage

GIVEN: dict[str, Any] = json.loads(os.environ.get("VICTIM", "{}"))
PROMPT = Prompt(id="p", workload="w", text="t", input_ids=(5, 6, 7))


def tell(event: str) -> None:
    with Path(GIVEN["events"]).open("a", encoding="utf-8") as file:
        file.write(event + "\n")


def linger(at: str) -> None:
    """Wait to be killed at this step, if that is the plan."""
    if GIVEN.get("linger") == at:
        time.sleep(120)


@pytest.fixture(scope="session")
def server() -> Iterator[OwnedServer]:
    root = Path(GIVEN["root"])
    tell("stage")
    staged = stage(root / "drafter", cache=root / "cache", target_positions=4096, blind=True)
    fields = dict(GIVEN["spec"])
    spec = ServerSpec(
        **fields | {"drafter": staged.path, "env": tuple(map(tuple, fields.get("env", ())))},
        speculation=Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3),
    )
    said: set[str] = set()

    def progress(seen: BootProgress) -> None:
        if seen.phase not in said:
            said.add(seen.phase)
            tell(f"boot:{seen.phase}")

    with boot(spec, log_path=root / "server.log", timeout_s=300, progress=progress) as booted:
        tell(f"up:{booted.pid}:{booted.url.rpartition(':')[2]}")
        yield booted
        tell("teardown")
        linger("teardown")
        if GIVEN.get("fault") == "teardown-error":
            raise RuntimeError("teardown fails")
    tell("down")


def test_probe(server: OwnedServer) -> None:
    tell("probe")
    if GIVEN.get("fault") == "os-exit":
        os._exit(3)
    until = time.monotonic() + (120 if GIVEN.get("linger") == "probe" else 0.2)
    while time.monotonic() < until:
        server.client.generate(PROMPT, max_new_tokens=6, ignore_eos=True)
        time.sleep(0.02)
