"""Each server is booted once, asked everything that any test wants to know of it, and taken down at once.

What tests share is the record (answers and log), so no server idles beside another.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_specprobe.engines.cpu import OVERLAY
from tests.support.engine.oracle import Oracle
from tests.support.engine.pairs import Pair, pairs
from tests.support.engine.record import CHUNK, TOKENS, Run
from tests.support.engine.serving import Answer, Server, Shape, serve
from tests.support.engine.simulation import Drafter, load_drafter

# Answers to SGLang's questions about the host, as other CPUs would give them. Each says so in the server's log.
_PRETEND = {
    # soundfile, which transformers imports, picks the library that it brings along by the machine's name.
    "dense": """\
import contextlib, platform, sys
with contextlib.suppress(ImportError, OSError):
    import soundfile
platform.machine = lambda: "aarch64"
print("pretending to be aarch64", file=sys.stderr, flush=True)
""",
    "mla": """\
import sys, torch.cpu
torch.cpu._is_amx_tile_supported = lambda: True
print("pretending to have AMX", file=sys.stderr, flush=True)
""",
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Threads that wait for each other stall beside a server on the same cores; the models here are tiny.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def kernel() -> Any:
    """Import the overlay's ``sgl_kernel``, once: its operations can be registered once a process."""
    sys.path.insert(0, str(OVERLAY))
    try:
        import sgl_kernel  # noqa: PLC0415  only now does the name mean the overlay
    finally:
        sys.path.remove(str(OVERLAY))
    assert sgl_kernel.__file__.startswith(str(OVERLAY))
    return sgl_kernel


@pytest.fixture(scope="session", params=["dense", "mla"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return pairs()[request.param]


@pytest.fixture(scope="session")
def oracle(pair: Pair) -> Oracle:
    return Oracle(pair.target)


@pytest.fixture(scope="session")
def drafter(pair: Pair) -> Drafter:
    return load_drafter(pair.drafter)


def _record(
    pair: Pair, folder: Path, *flags: str, shape: Shape, ask: Callable[[Server], dict[str, list[Answer]]]
) -> Run:
    """Boot with or without the drafter (a shape of no steps is a baseline), ask, and take the server down."""
    log = folder / "server.log"
    drafter = pair.drafter if shape.num_steps else None
    with serve(pair.target, *flags, drafter=drafter, shape=shape, log=log) as server:
        passes = ask(server)
    return Run(shape=shape, passes=passes, log=log.read_text(errors="replace"))


@pytest.fixture(scope="session")
def baseline(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """No speculation."""
    prompts = pair.prompts()

    def ask(server: Server) -> dict[str, list[Answer]]:
        return {
            "many": server.generate(prompts, tokens=TOKENS, concurrency=8),
            "natural": server.generate(prompts, tokens=TOKENS, concurrency=8, ignore_eos=False),
        }

    folder = tmp_path_factory.mktemp("baseline")
    return _record(pair, folder, "--disable-radix-cache", shape=Shape(num_steps=0, tokens=1), ask=ask)


@pytest.fixture(scope="session")
def chain2(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """D = 2 without a prefix cache: the founding settings, on the founding shape alone."""
    if pair.name == "dense":
        pytest.skip("a boot of half a minute: the longer chain shows the same of the dense pair")
    prompts = pair.prompts()

    def ask(server: Server) -> dict[str, list[Answer]]:
        return {
            "one": server.generate(prompts[::2], tokens=TOKENS),
            "many": server.generate(prompts, tokens=TOKENS, concurrency=8),
        }

    folder = tmp_path_factory.mktemp("chain2")
    return _record(pair, folder, "--disable-radix-cache", shape=Shape(num_steps=2, tokens=3), ask=ask)


@pytest.fixture(scope="session")
def chain4(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """D = 4 with a prefix cache (cold, then half warm under concurrency), on the dense pair alone."""
    if pair.name == "mla":
        pytest.skip("a boot of half a minute: the tree has cache and chunks on this pair")
    prompts = pair.prompts()

    def ask(server: Server) -> dict[str, list[Answer]]:
        return {
            # one at a time is slow
            "one": server.generate(prompts[::2], tokens=TOKENS),
            "many": server.generate(prompts, tokens=TOKENS, concurrency=8),
            "natural": server.generate(prompts, tokens=TOKENS, concurrency=4, ignore_eos=False),
        }

    folder = tmp_path_factory.mktemp("chain4")
    return _record(pair, folder, "--chunked-prefill-size", str(CHUNK), shape=Shape(num_steps=4, tokens=5), ask=ask)


@pytest.fixture(scope="session")
def tree(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A tree of depth 4, with a prefix cache (cold, then warm), in a server that takes its host for another.

    Both pairs have a prefill in chunks: the dense one in its chain, the other one here.
    """
    prompts = pair.prompts()
    folder = tmp_path_factory.mktemp("tree")
    (folder / "sitecustomize.py").write_text(_PRETEND[pair.name])

    def ask(server: Server) -> dict[str, list[Answer]]:
        return {
            "many": server.generate(prompts, tokens=TOKENS, concurrency=4),
            "again": server.generate(prompts, tokens=TOKENS, concurrency=8),
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        chunks = ("--chunked-prefill-size", str(CHUNK)) if pair.name == "mla" else ()
        return _record(pair, folder, *chunks, shape=Shape(num_steps=4, topk=4, tokens=12), ask=ask)


@pytest.fixture
def runs(request: pytest.FixtureRequest, pair: Pair) -> Callable[[str], Run]:
    """Return a server's record by the name of its fixture, booting it if this is the first question."""

    def get(name: str) -> Run:
        run = request.getfixturevalue(name)
        assert isinstance(run, Run)
        return run

    return get
