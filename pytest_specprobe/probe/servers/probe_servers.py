"""The running servers of one probe, proved before they are measured, and the prompts as they tokenize them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from pytest_specprobe.errors import SpecprobeError
from pytest_specprobe.measure.request import Generation, Prompt
from pytest_specprobe.measure.throughput import KnownBaseline
from pytest_specprobe.measure.workloads import Workload, load_workload
from pytest_specprobe.probe.context import ProbeContext
from pytest_specprobe.probe.files import ProbeFiles
from pytest_specprobe.probe.foreign_traffic import TrafficWatch
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.plan.boots import (
    BASELINE,
    BLIND,
    DRAFTER,
    DRAFTER_AGAIN,
    arm_boot,
    makes_room,
    wants_blind,
)
from pytest_specprobe.probe.plan.preflight import Preflight
from pytest_specprobe.probe.servers.alternating import AlternatingServer, Alternation
from pytest_specprobe.probe.servers.baselines import Baseline, Baselines
from pytest_specprobe.probe.servers.booter import Booter
from pytest_specprobe.probe.servers.proofs import Proofs
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.server.attach import AttachedServer, attach
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.closing import close_all
from pytest_specprobe.server.http.info import ServerInfo
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.spec import ServerSpec

CANARY_TOKENS = 32


class ProbeServers:
    """Boots or attaches to the servers of one profile; each once, and its own are stopped by ``close``."""

    def __init__(self, context: ProbeContext, files: ProbeFiles, once: Once) -> None:
        self._context = context
        self._profile = context.profile
        self._settings = context.settings
        self._phases = context.phases
        self._pool = context.session.baselines
        self._files = files
        self._once = once
        self._open: list[Server] = []
        self._past_logs = ""
        self.proofs = Proofs(self._canary, phases=context.phases, once=once)
        self.baselines = Baselines(
            context,
            files,
            booter=self.booter,
            attach=lambda url: self._attach(url, what="baseline"),
            workload=self.workload,
        )

    def server(self) -> Server:
        """Boot (or attach to) the drafter's server and prove what runs.

        :raises BootError: if it does not become ready.
        :raises CheckFailed: if it runs, but not what was asked for.
        """
        server = self._once.get("server", self._server)
        self.proofs.drafter(server, self.spec)
        return server

    def _server(self) -> Server:
        settings = self._settings
        if settings.server is None:
            return self._boot(self._files.staged().path, what=DRAFTER)
        self._files.checkpoint()
        server = self._attach(settings.server, what="server")
        if server.vouched:
            # It runs the staged copy, which is found again by what is in it.
            self._files.staged()
        return server

    def _attach(self, url: str, *, what: str) -> Server:
        with self._phases.phase("boot", f"attach to the {what} at {url}"):
            server = attach(url)
        self._open.append(server)
        return server

    def _boot(self, drafter: Path, *, what: str) -> Server:
        server = self.booter().boot(drafter, what=what)
        self._open.append(server)
        return server

    def prove_again(self) -> ServerInfo:
        """Prove the drafter's server once more, after a pass; return what it says of itself now.

        :raises MeasurementError: if it does not answer.
        """
        return self.proofs.again(self.server(), self.spec())

    def _canary(self, server: Server) -> Generation:
        return server.client.generate(self.prompts()[0], max_new_tokens=CANARY_TOKENS, ignore_eos=True)

    def spec(self) -> ServerSpec:
        """Return what the drafter's server was asked to be, booted here or not."""
        if self._settings.server is None:
            return self.booter().spec(self._files.staged().path)
        checked, server = self._files.checkpoint(), self._once.get("server", self._server)
        drafter = checked.drafter
        if isinstance(server, AttachedServer) and server.drafter is not None:
            # It may be in another cache; the name of a staged directory says what is in it.
            staged = self._files.staged().path
            drafter = server.drafter if server.drafter.name == staged.name else staged
        return ServerSpec(
            model=str(checked.target.path),
            drafter=drafter,
            speculation=self._profile.drafter.speculation,
            tp=self._profile.target.tp,
            trust_remote_code=self._profile.target.trust_remote_code,
        )

    def booter(self) -> Booter:
        """Return what all servers of this probe have in common."""
        return self._once.get("booter", self._booter)

    def _booter(self) -> Booter:
        checked, place = self._files.checkpoint(), self._files.preflight().place
        if place is None:
            raise AssertionError("an owned server has a place")
        return Booter(
            context=self._context,
            target=checked.target.path,
            place=place,
            mla=checked.target.mla,
            extra_args=self._context.session.server_args(self._profile),
        )

    def baseline(self) -> Baseline:
        """Boot, attach to, or take as declared the speed without speculation."""
        return self._once.get("baseline", self._baseline)

    def _baseline(self) -> Baseline:
        found = self.baselines.find()
        if found.server is not None:
            self.proofs.baseline(found.server, self._profile.target)
        return found

    def alternation(self, watch: TrafficWatch) -> Alternation:
        """Return the drafter's server and its baseline as two that are never up together; each boot is proved.

        After the pass the drafter's server is the one that is up, at its old address.
        """
        server = self.server()
        if not isinstance(server, OwnedServer):
            raise AssertionError("an attached server is not ours to suspend")
        own = AlternatingServer("drafter", self._boot_again, server, up=True)
        return Alternation(own, AlternatingServer("baseline", self._boot_baseline), watch)

    def _boot_again(self, server: OwnedServer | None) -> OwnedServer:
        if server is None:
            raise AssertionError("the drafter's server was up before the pass")
        self._past_logs += server.log_text()
        back = self.booter().boot(self._files.staged().path, what=DRAFTER_AGAIN, again=server)
        self.proofs.other(back, self.spec())
        return back

    def _boot_baseline(self, server: OwnedServer | None) -> OwnedServer:
        booted = self.booter().boot(None, what=BASELINE, again=server)
        self._open.append(booted)
        with _or_closed(booted):
            self.proofs.baseline(booted, self._profile.target)
        return booted

    def log_text(self) -> str | None:
        """Return the log of every boot of the drafter's server; None if there is none or it cannot be seen."""
        server = self.drafter
        return None if server is None or not server.vouched else self._past_logs + server.own_log_text()

    @property
    def known_baseline(self) -> KnownBaseline | None:
        """The stored or declared baseline, if the probe came to ask for one."""
        found: Baseline | None = self._once.peek("baseline")
        return None if found is None else found.known

    def workload(self) -> Workload:
        """Return the prompt set.

        :raises ProfileError: if it cannot be read.
        """
        settings = self._settings
        return self._once.get(
            "workload", lambda: load_workload(settings.workload or self._profile.workload, root=settings.root)
        )

    def prompts(self) -> tuple[Prompt, ...]:
        """Return the prompts as the server's own chat template and tokenizer give them."""
        return self._once.get("prompts", self._prompts)

    def _prompts(self) -> tuple[Prompt, ...]:
        client = self._once.get("server", self._server).client
        return self.workload().prompts(partial(client.tokenize_chat, thinking=self._profile.target.thinking))

    def arm(self, setting: Speculation, *, candidates: tuple[int, ...] = ()) -> Server:
        """Boot the drafter once more, with another setting, and prove that it runs; the caller closes it.

        :param candidates: step counts that it can be pinned to while it runs.
        :raises BootError: if it does not become ready.
        :raises CheckFailed: if the server runs, but not with this setting.
        """
        booter, staged = self.booter(), self._files.staged().path
        what = arm_boot(setting, candidates=candidates)
        server = booter.boot(staged, what=what, setting=setting, candidates=candidates)
        self._open.append(server)
        with _or_closed(server):
            self.proofs.other(server, booter.spec(staged, setting=setting, candidates=candidates))
        return server

    @contextmanager
    def blind(self) -> Iterator[Server]:
        """Boot the blind control, in the place of the drafter's server where it does not fit beside it."""
        with self.room(), self._boot(self._files.staged_blind().path, what=BLIND) as blind:
            self.proofs.other(blind, self.booter().spec(self._files.staged_blind().path))
            yield blind

    @contextmanager
    def room(self) -> Iterator[bool]:
        """Make room for one more server: where it does not fit, the drafter's is down meanwhile and up again after.

        Yields whether the drafter's server stayed up. It is up again after an error of ours too: what asks it next
        would hide the cause.
        """
        server = self.server()
        crowded = makes_room(self.booter().spec(None), baselines=len(self._pool.servers))
        moved = server if crowded and isinstance(server, OwnedServer) else None
        if moved:
            moved.suspend()
        try:
            yield moved is None
        except SpecprobeError:
            if moved:
                with suppress(SpecprobeError):
                    self._boot_again(moved)
            raise
        if moved:
            self._boot_again(moved)

    def wants_blind(self) -> bool:
        """Tell whether a blind control is asked for: by option, by profile, else wherever boots are cheap."""
        return wants_blind(self._profile, self._settings, device=self.device)

    @property
    def device(self) -> str:
        """Where the drafter's server runs: cuda, cpu, or attached."""
        return "attached" if self._settings.server else self.booter().place.device

    def torch(self) -> str | None:
        """Return the version of torch that owned servers run; None for an attached one, or before it is known."""
        found: Preflight | None = self._once.peek("preflight")
        return found.place.engine.torch if found is not None and found.place is not None else None

    @property
    def drafter(self) -> Server | None:
        """The drafter's server if it was booted, proved or not."""
        server: Server | None = self._once.peek("server")
        return server

    def close(self) -> None:
        """Stop this drafter's own servers; the baseline is shared and stays.

        :raises ServerError: if a process of one would not end; the others were stopped all the same.
        """
        close_all(self._open.pop().close for _ in range(len(self._open)))


@contextmanager
def _or_closed(server: Server) -> Iterator[None]:
    """Close a server that was just booted if what the block asks of it fails."""
    try:
        yield
    except BaseException:
        server.close()
        raise
