"""The supervisor: whatever dies, nothing of the server is left. Real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from pytest_specprobe.errors import BootError
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.process import supervisor
from pytest_specprobe.server.process.handle import Supervised

FAKE = Path(__file__).parents[2] / "support" / "fake_sglang.py"


def gone(pids: list[int], *, within_s: float) -> bool:
    """Wait until none of these processes lives (a zombie does not live)."""
    deadline = time.monotonic() + within_s
    while True:
        processes = [supervisor.read_process(pid) for pid in pids]
        if all(p is None or p.zombie for p in processes):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def told(path: Path, *, within_s: float = 20) -> list[int]:
    deadline = time.monotonic() + within_s
    while not path.exists():
        assert time.monotonic() < deadline, "the fake server did not start"
        time.sleep(0.05)
    pids: list[int] = json.loads(path.read_text())
    return pids


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pids"
    yield path
    for pid in json.loads(path.read_text()) if path.exists() else []:
        # Only what this very test started, and only where the test has failed already.
        if (process := supervisor.read_process(pid)) and not process.zombie:
            supervisor.send(process, signal.SIGKILL)


def fake_env(tell: Path, **plan: Any) -> dict[str, str]:
    return {**os.environ, "FAKE_SGLANG": json.dumps({"silent": True, "tell": str(tell), **plan})}


def start(tmp_path: Path, env: dict[str, str], *, scratch: tuple[Path, str, Secret] | None = None) -> Supervised:
    return Supervised.start(fake_argv(), env=env, log_path=tmp_path / "log", marker=token_hex(8), scratch=scratch)


def fake_argv() -> list[str]:
    return [sys.executable, "-I", "-S", str(FAKE)]


def test_stop_ends_a_tree_with_deaf_and_daemonised_members(
    tmp_path: Path, tell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_specprobe.server.process.handle.GRACE_S", 0.5)
    server = start(tmp_path, fake_env(tell, children=True))
    pids = told(tell)
    assert len(pids) == 3
    assert server.pid == pids[0]
    assert server.poll()
    server.stop()
    assert gone(pids, within_s=0)
    assert server.exit_signal == signal.SIGTERM
    assert not server.poll()
    server.stop()


def test_a_server_that_dies_takes_its_children_along_and_its_code_is_heard(
    tmp_path: Path, tell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_specprobe.server.process.handle.GRACE_S", 0.5)
    env = fake_env(tell, children=True, log="bye\n", exit=7)
    server = start(tmp_path, env)
    pids = told(tell)
    while server.poll(timeout_s=0.2):
        pass
    server.stop()
    assert (server.exit_code, server.exit_signal) == (7, None)
    assert gone(pids, within_s=0)
    assert (tmp_path / "log").read_text() == "bye\n"


def test_a_stopped_server_is_ended_too(tmp_path: Path, tell: Path) -> None:
    server = start(tmp_path, fake_env(tell))
    pids = told(tell)
    os.kill(pids[0], signal.SIGSTOP)
    server.stop()
    assert gone(pids, within_s=0)
    # Asked first, as any other: it had to go on to hear it.
    assert server.exit_signal == signal.SIGTERM


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BootError, match="No such file or directory") as caught:
        Supervised.start(["/nowhere/python"], env={}, marker=token_hex(8), log_path=tmp_path / "log")
    assert caught.value.culprit == "machine"


def test_if_the_supervisor_is_killed_the_server_dies_and_stop_clears_the_rest(tmp_path: Path, tell: Path) -> None:
    server = start(tmp_path, fake_env(tell, children=True))
    pids = told(tell)
    os.kill(server._process.pid, signal.SIGKILL)
    # The kernel ends the server itself at once; the deaf ones carry its marker and are found by that.
    assert gone(pids[:1], within_s=5)
    assert not server.poll(timeout_s=5)
    server.stop()
    assert gone(pids, within_s=0)


def test_the_scratch_directory_lives_as_long_as_the_server(tmp_path: Path, tell: Path) -> None:
    scratch = tmp_path / "scratch"
    server = start(tmp_path, fake_env(tell), scratch=(scratch, "key.yaml", Secret("sesame")))
    told(tell)
    assert (scratch / "key.yaml").read_text() == "sesame"
    assert [p.stat().st_mode & 0o777 for p in (scratch, scratch / "key.yaml")] == [0o700, 0o600]
    (scratch / "left").mkdir()
    server.stop()
    assert not scratch.exists()


def test_a_key_is_never_written_to_where_something_is(tmp_path: Path, tell: Path) -> None:
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    elsewhere.mkdir()
    scratch.symlink_to(elsewhere)
    with pytest.raises(BootError, match="File exists"):
        start(tmp_path, fake_env(tell), scratch=(scratch, "key.yaml", Secret("sesame")))
    assert list(elsewhere.iterdir()) == []
    (elsewhere / "file").write_text("another's")
    with pytest.raises(BootError, match="File exists"):
        start(tmp_path, fake_env(tell), scratch=(elsewhere, "key.yaml", Secret("sesame")))
    assert [f.name for f in elsewhere.iterdir()] == ["file"]


OWNER = textwrap.dedent("""
    import json, os, signal, sys, time
    from pathlib import Path
    from secrets import token_hex
    from pytest_specprobe.server.process import handle as process
    from pytest_specprobe.server.process.handle import Supervised
    process.GRACE_S = 1.0
    # A test run in the background ignores SIGINT, one under nohup SIGHUP, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    argv, env, log = json.loads(sys.argv[1])
    server = Supervised.start(argv, env=env, marker=token_hex(8), log_path=Path(log))
    print(server.pid, server._process.pid, flush=True)
    try:
        time.sleep(600)
    finally:
        server.stop()
""")


@pytest.fixture
def owner(tmp_path: Path, tell: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    request = json.dumps([fake_argv(), fake_env(tell, children=True), str(tmp_path / "log")])
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, request], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        yield process, [*told(tell), int(line[1])]
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_however_the_owner_dies_nothing_outlives_it(
    owner: tuple[subprocess.Popen[str], list[int]], number: signal.Signals
) -> None:
    process, pids = owner
    process.send_signal(number)
    process.wait(timeout=60)
    # Deaf children hold out for the whole grace.
    assert gone(pids, within_s=20)


def test_if_owner_and_supervisor_are_killed_at_once_the_keeper_clears_all(
    owner: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = owner
    supervised = pids[-1]
    keepers = [p.pid for p in supervisor.descendants(supervised) if p.parent == supervised and p.pid not in pids]
    assert len(keepers) == 1
    os.kill(supervised, signal.SIGKILL)
    process.kill()
    process.wait(timeout=60)
    assert gone([*pids, *keepers], within_s=20)


def test_a_keeper_goes_with_its_supervisor(tmp_path: Path, tell: Path) -> None:
    server = start(tmp_path, fake_env(tell))
    pids = told(tell)
    family = [p.pid for p in supervisor.descendants(server._process.pid)]
    assert set(pids) < set(family)
    server.stop()
    assert gone(family, within_s=0)


def test_ctrl_c_of_the_terminal_does_not_reach_the_server_first(
    owner: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = owner
    server, supervised = pids[0], pids[-1]
    groups = {os.getpgid(pid) for pid in (server, supervised, process.pid)}
    # Three of them: a server that signals its own group must not hit its supervisor either.
    assert len(groups) == 3
    assert os.getsid(supervised) != os.getsid(process.pid)


def test_a_signal_goes_to_the_recorded_process_only() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        process = supervisor.read_process(sleeper.pid)
        assert process is not None
        recycled = process._replace(start_time=process.start_time - 1)
        assert not supervisor.send(recycled, signal.SIGKILL)
        assert sleeper.poll() is None
        assert supervisor.send(process, signal.SIGKILL)
        assert sleeper.wait(timeout=10) == -signal.SIGKILL


def test_it_runs_on_the_standard_library_alone() -> None:
    script = "import sys, runpy; runpy.run_path(sys.argv[1]); print([m for m in sys.modules if 'psutil' in m])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, supervisor.__file__], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
