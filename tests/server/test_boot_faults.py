"""Boots that fail: each ends soon, names its culprit, shows the log, and leaves nothing running."""

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specprobe.errors import BootError, PortTaken, ServerError
from pytest_specprobe.server import boot_times, boot_watch
from pytest_specprobe.server.boot import boot
from pytest_specprobe.server.boot_watch import BootProgress
from pytest_specprobe.server.port import HeldPort, OwnPort
from pytest_specprobe.server.process import ownership, supervisor
from pytest_specprobe.server.process.handle import Supervised
from pytest_specprobe.server.process.stall import StallWatch
from pytest_specprobe.server.spec import ServerSpec

MakeSpec = Callable[..., ServerSpec]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Any:
    yield
    for path in tmp_path.glob("pids*"):
        for pid in json.loads(path.read_text()):
            process = supervisor.read_process(pid)
            assert process is None or process.zombie, f"process {pid} outlived its test"
    assert ownership.servers() == ()


def fails(spec: ServerSpec, tmp_path: Path, **options: Any) -> BootError:
    with pytest.raises(BootError) as caught:
        boot(spec, log_path=tmp_path / "server.log", **{"timeout_s": 60, **options})
    return caught.value


def test_a_good_boot_and_its_end(fake_spec: MakeSpec, tmp_path: Path) -> None:
    seen: list[BootProgress] = []
    spec = fake_spec(tell=str(tmp_path / "pids"), children=False, log="Load weight begin\n")
    with boot(spec, log_path=tmp_path / "server.log", timeout_s=60, progress=seen.append) as server:
        assert server.alive()
        assert server.log_text() == "Load weight begin\n"
        assert server.boot_s is not None
    assert not server.alive()
    assert seen[-1].phase == "ready"
    assert boot_times.usual_s(spec) == pytest.approx(server.boot_s, abs=0.06)


def test_an_early_exit_is_seen_at_once_with_its_root_cause(fake_spec: MakeSpec, tmp_path: Path) -> None:
    log = "Load weight begin\nTraceback (most recent call last):\n  x\nZeroDivisionError: boom\nlast line\n"
    started = time.monotonic()
    error = fails(fake_spec(tell=str(tmp_path / "pids"), log=log, exit=3, children=False), tmp_path, timeout_s=600)
    assert time.monotonic() - started < 30
    assert error.culprit == "engine"
    assert "in phase weights" in error.what
    assert "ZeroDivisionError: boom" in error.what
    assert error.detail.endswith("last line")


def test_a_server_that_is_never_healthy_ends_with_its_patience(fake_spec: MakeSpec, tmp_path: Path) -> None:
    spec = fake_spec(tell=str(tmp_path / "pids"), never=True, log="Uvicorn running on x\n")
    error = fails(spec, tmp_path, timeout_s=3)
    assert "not ready after 3 s, in phase warm-up" in error.what
    assert "--specprobe-boot-timeout" in error.fix


def test_a_stuck_server_is_told_from_a_slow_one(fake_spec: MakeSpec, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(boot_watch, "_STALL_EVERY_S", 0.5)
    error = fails(fake_spec(tell=str(tmp_path / "pids"), silent=True), tmp_path, stall_patience_s=2)
    assert "is stuck: no log line, no CPU time and no I/O" in error.what
    assert error.culprit == "engine"
    busy = fails(fake_spec(tell=str(tmp_path / "pids2"), spin=True), tmp_path, stall_patience_s=2, timeout_s=5)
    assert "not ready after 5 s" in busy.what
    chatty = fails(fake_spec(tell=str(tmp_path / "pids3"), chatty=True), tmp_path, stall_patience_s=2, timeout_s=5)
    assert "not ready after 5 s" in chatty.what


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path) -> None:
    error = fails(ServerSpec(model="m", python="/nowhere/python"), tmp_path)
    assert "/nowhere/python" in str(error)
    assert error.culprit == "machine"


def test_an_interpreter_without_sglang_is_named(tmp_path: Path) -> None:
    # A real interpreter that sees nothing but the standard library.
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec "{os.sys.executable}" -I -S "$@"\n')  # type: ignore[attr-defined]
    python.chmod(0o755)
    error = fails(ServerSpec(model="m", python=str(python)), tmp_path)
    assert "the interpreter holds no SGLang" in error.what
    assert error.culprit == "machine"


@pytest.mark.parametrize("linger", [False, True])
def test_a_port_that_others_take_between_two_looks_is_tried_anew_and_then_named(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: Any, linger: bool
) -> None:
    takers: list[socket.socket] = []
    take = HeldPort.take

    def taken() -> HeldPort:
        held = take()
        taker = socket.socket()
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("127.0.0.1", held.number))
        taker.listen()
        takers.append(taker)
        return held

    monkeypatch.setattr(HeldPort, "take", taken)
    monkeypatch.setattr(OwnPort, "answered", lambda _: False)
    spec = fake_spec(tell=str(tmp_path / "pids"), linger=linger)
    try:
        with pytest.raises(PortTaken, match="the port was taken") as caught:
            boot(spec, log_path=tmp_path / "server.log", timeout_s=60)
        assert len(takers) == 3
        assert caught.value.culprit == "machine"
        assert os.strerror(errno.EADDRINUSE).lower() in caught.value.detail.lower()
    finally:
        for taker in takers:
            taker.close()


def test_a_server_that_answers_without_its_key_is_refused(fake_spec: MakeSpec, tmp_path: Path) -> None:
    error = fails(fake_spec(tell=str(tmp_path / "pids"), open=True), tmp_path)
    assert "without its key" in error.what
    assert error.culprit == "engine"


def test_an_exception_while_watching_ends_the_server(fake_spec: MakeSpec, tmp_path: Path) -> None:
    def interrupt(_: BootProgress) -> None:
        raise KeyboardInterrupt

    spec = fake_spec(tell=str(tmp_path / "pids"), never=True)
    with pytest.raises(KeyboardInterrupt):
        boot(spec, log_path=tmp_path / "server.log", timeout_s=60, progress=interrupt)


def test_a_log_that_cannot_be_written_is_named(fake_spec: MakeSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="cannot be written") as caught:
        boot(fake_spec(), log_path=tmp_path / "file" / "server.log", timeout_s=60)
    assert caught.value.culprit == "machine"  # type: ignore[attr-defined]


def test_the_key_leaves_no_trace_in_the_log_on_disk(fake_spec: MakeSpec, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with boot(fake_spec(tell=str(tmp_path / "pids")), log_path=log, timeout_s=60) as server:
        with log.open("a") as file:
            file.write(f"ServerArgs(api_key='{server.api_key.reveal()}', key {server.api_key.reveal()})\n")
        assert server.api_key.reveal() not in server.log_text()
        assert server.api_key.reveal() not in server.log_tail()
    assert server.api_key.reveal() not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".server.log*")) == []


def test_a_process_that_would_not_end_leaves_no_key_in_the_log_either(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Supervised.stop

    def stays(self: Supervised) -> None:
        stop(self)
        raise ServerError("processes would not end", culprit="machine", fix="see nvidia-smi")

    log = tmp_path / "server.log"
    server = boot(fake_spec(), log_path=log, timeout_s=60)
    with log.open("a") as file:
        file.write(f"server_args api_key='{server.api_key.reveal()}'\n")
    monkeypatch.setattr(Supervised, "stop", stays)
    with pytest.raises(ServerError, match="would not end"):
        server.close()
    assert server.api_key.reveal() not in log.read_text()
    monkeypatch.undo()
    server.close()


def test_a_dead_server_is_noticed(fake_spec: MakeSpec, tmp_path: Path) -> None:
    with boot(fake_spec(tell=str(tmp_path / "pids")), log_path=tmp_path / "server.log", timeout_s=60) as server:
        assert server.pid is not None
        os.kill(server.pid, 9)
        deadline = time.monotonic() + 20
        while server.alive():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.exit == (None, 9)


def test_a_leftover_of_a_killed_run_is_found_and_reaped_and_a_live_runs_server_is_not(
    fake_spec: MakeSpec, tmp_path: Path, monkeypatch: Any
) -> None:
    spec = fake_spec(tell=str(tmp_path / "pids"), children=True)
    with boot(spec, log_path=tmp_path / "server.log", timeout_s=60, label="leaked") as server:
        assert ownership.leftovers() == ()
        assert ownership.reap() == ()
        assert server.alive()
        (record,) = ownership.records_dir().glob("*.json")
        fields = json.loads(record.read_text())
        # As if the owner had been killed, and its pid given to another process since.
        record.write_text(json.dumps(fields | {"owner_start_time": fields["owner_start_time"] - 1}))
        assert [o.label for o in ownership.leftovers()] == ["leaked"]
        assert [(r.owned.label, r.left) for r in ownership.reap(grace_s=0.5)] == [("leaked", ())]
        assert not list(ownership.records_dir().glob("*.json"))


def test_a_record_of_another_boot_of_the_machine_or_another_host_ends_nothing(
    fake_spec: MakeSpec, tmp_path: Path
) -> None:
    with boot(fake_spec(tell=str(tmp_path / "pids")), log_path=tmp_path / "server.log", timeout_s=60) as server:
        (record,) = ownership.records_dir().glob("*.json")
        fields = json.loads(record.read_text()) | {"owner_pid": 1, "owner_start_time": -1}
        for change in ({"host": "elsewhere"}, {"boot_id": "another"}):
            record.write_text(json.dumps(fields | change))
            assert ownership.reap() == ()
            assert server.alive()


def test_a_stall_is_no_log_no_cpu_and_no_io_for_the_whole_patience() -> None:
    effort = [0.0, 0]
    watch = StallWatch(1, patience_s=10, look=lambda _: (effort[0], int(effort[1])))
    assert not watch.stalled(now_s=0, quiet_s=0)
    assert not watch.stalled(now_s=9, quiet_s=9)
    assert watch.stalled(now_s=10, quiet_s=10)
    effort[0] += 5
    assert not watch.stalled(now_s=11, quiet_s=11)
    assert not watch.stalled(now_s=20, quiet_s=20)
    effort[1] += 10_000_000
    assert not watch.stalled(now_s=21.5, quiet_s=21)
    assert not watch.stalled(now_s=31, quiet_s=1)
    assert not watch.stalled(now_s=40, quiet_s=10)
    assert watch.stalled(now_s=41, quiet_s=11)


def test_two_boots_at_once_share_nothing(fake_spec: MakeSpec, tmp_path: Path) -> None:
    servers: list[Any] = []

    def one(number: int) -> None:
        spec = fake_spec(tell=str(tmp_path / f"pids{number}"))
        servers.append(boot(spec, log_path=tmp_path / f"{number}.log", timeout_s=60))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = servers
    assert first.url != second.url
    first.close()
    assert second.client.healthy()
    second.close()
