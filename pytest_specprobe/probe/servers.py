"""The running servers of one probe, proved before they are measured, and the prompts as they tokenize them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_specprobe.findings import Finding, failed, require
from pytest_specprobe.measure.records import Generation, Prompt
from pytest_specprobe.measure.throughput import KnownBaseline, Throughput, declared
from pytest_specprobe.measure.workloads import Workload, load_workload
from pytest_specprobe.probe.boots import BaselinePool, Booter
from pytest_specprobe.probe.files import ProbeFiles
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.probe.preflight import Preflight
from pytest_specprobe.probe.relay import Relay, Runner
from pytest_specprobe.probe.stored import Question, StoredBaselines
from pytest_specprobe.profiles import Profile, Speculation
from pytest_specprobe.server.attach import AttachedServer, attach
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.gpu_hold import GpuHold
from pytest_specprobe.server.info import ServerInfo, differences
from pytest_specprobe.server.owned import OwnedServer
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec
from pytest_specprobe.settings import Settings

CANARY_TOKENS = 32
_BOOTED = ("boot", "alternating", "stored")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The speed without speculation: a running server, a number known from elsewhere, or neither.

    ``apart``: a server that is only up while the drafter's is not, and measured in turn with it.
    """

    server: Server | None
    known: KnownBaseline | None
    apart: bool = False


class ProbeServers:
    """Boots or attaches to the servers of one profile; each once, and its own are stopped by ``close``."""

    def __init__(
        self,
        profile: Profile,
        files: ProbeFiles,
        *,
        settings: Settings,
        extra_args: Callable[[Profile], tuple[str, ...]],
        baselines: BaselinePool,
        hold: GpuHold,
        api_key: str | None,
        phases: PhaseLog,
        once: Once,
    ) -> None:
        self._hold = hold
        self._api_key = api_key
        self._profile = profile
        self._files = files
        self._settings = settings
        self._extra_args = extra_args
        self._baselines = baselines
        self._phases = phases
        self._once = once
        self._open: list[Server] = []
        self._after: tuple[Finding, ...] = ()
        self._plain: tuple[Finding, ...] = ()
        self._past_logs = ""
        self._stored = StoredBaselines(settings.report, phases)

    def server(self) -> Server:
        """Boot (or attach to) the drafter's server and prove what runs.

        :raises BootError: if it does not become ready.
        :raises CheckFailed: if it runs, but not what was asked for.
        """
        server = self._once.get("server", self._server)
        require(self._once.get("proof", self._prove))
        return server

    def _server(self) -> Server:
        settings = self._settings
        if settings.server is None:
            return self._boot(self._files.staged().path, what="drafter")
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

    def _prove(self) -> tuple[Finding, ...]:
        server = self._once.get("server", self._server)
        with self._phases.phase("prove", "settings, log and a canary request"):
            info = self._once.get("info", server.client.server_info)
            return self._check(server, info)

    def _check(self, server: Server, info: ServerInfo) -> tuple[Finding, ...]:
        return self._proofs(server, info, self.spec(), self._once.get("canary", lambda: self._canary(server)))

    def _canary(self, server: Server) -> Generation:
        return server.client.generate(self.prompts()[0], max_new_tokens=CANARY_TOKENS, ignore_eos=True)

    def _proofs(self, server: Server, info: ServerInfo, spec: ServerSpec, canary: Generation) -> tuple[Finding, ...]:
        return prove(
            info,
            spec=spec,
            log_text=server.log_text() if server.vouched else None,
            canary=canary,
            scrubbed=server.scrubbed if server.vouched else None,
            variables=server.variables,
        )

    def prove_again(self) -> None:
        """Ask the server again, after a pass: accept thresholds, for one, can be changed as it runs.

        What was wrong after one pass stays wrong, though it may be put right before the next.
        """
        server = self.server()
        if not failed(self._after):
            self._after = self._check(server, server.client.server_info())

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
        )

    def proof(self) -> tuple[Finding, ...]:
        """Return every proof of what runs, passing ones too, as of the last pass; empty before the boot."""
        found: tuple[Finding, ...] = self._after or self._once.peek("proof") or ()
        return (*found, *(f for f in self._plain if f.status == "fail" or f.id not in {g.id for g in found}))

    def booter(self) -> Booter:
        """Return what all servers of this probe have in common."""
        return self._once.get("booter", self._booter)

    def _booter(self) -> Booter:
        checked, place = self._files.checkpoint(), self._files.preflight().place
        if place is None:
            raise AssertionError("an owned server has a place")
        settings, target = self._settings, self._profile.target
        return Booter(
            profile=self._profile,
            target=checked.target.path,
            place=place,
            mla=checked.target.mla,
            extra_args=self._extra_args(self._profile),
            timeout_s=settings.boot_timeout_s or target.boot_timeout_s,
            folder=settings.report / "logs",
            phases=self._phases,
            hold=self._hold,
            api_key=self._api_key,
        )

    def baseline(self) -> Baseline:
        """Boot, attach to, or take as declared the speed without speculation."""
        return self._once.get("baseline", self._baseline)

    def _baseline(self) -> Baseline:
        found = self._find_baseline()
        if found.server is not None:
            self._prove_plain(found.server)
        return found

    def _prove_plain(self, server: Server) -> None:
        """Hold a baseline against what it must be; what fails is in ``proof``, and makes no speedup."""
        info = server.client.server_info()
        spec = ServerSpec(model=info.model_path, tp=self._profile.target.tp)
        self._plain = self._proofs(server, info, spec, self._canary(server))
        require(self._plain)
        self._once.get("baseline info", lambda: info)

    def _find_baseline(self) -> Baseline:
        asked = self._settings.baseline
        asked = self._profile.target.baseline if asked is None else asked
        if isinstance(asked, float):
            return Baseline(None, declared(asked))
        if asked == "none" or (self._settings.server is not None and asked in _BOOTED):
            return Baseline(None, None)
        if asked not in _BOOTED:
            return Baseline(self._attach(asked, what="baseline"), None)
        booter, pool = self.booter(), self._baselines.servers
        spec = booter.spec(None)
        if asked == "stored":
            known = self._stored.find(spec, self._question())
            if known is not None:
                return Baseline(None, known)
        if asked == "alternating" or not booter.fits(servers=2):
            self._phases.note("the drafter's server and its baseline are booted in turn, two more boots")
            return Baseline(None, None, apart=True)
        if spec not in pool:
            pool[spec] = booter.boot(None, what="baseline")
        return Baseline(pool[spec], None)

    def relay(self) -> Relay:
        """Return the drafter's server and its baseline as two that are never up together; each boot is proved.

        After the pass the drafter's server is the one that is up, at its old address.
        """
        server = self.server()
        if not isinstance(server, OwnedServer):
            raise AssertionError("an attached server is not ours to suspend")
        return Relay(Runner(self._boot_again, server, up=True), Runner(self._boot_baseline))

    def _boot_again(self, server: OwnedServer | None) -> OwnedServer:
        if server is None:
            raise AssertionError("the drafter's server was up before the pass")
        self._past_logs += server.log_text()
        back = self.booter().boot(self._files.staged().path, what="drafter again", again=server)
        require(self._proofs(back, back.client.server_info(), self.spec(), self._canary(back)))
        return back

    def _boot_baseline(self, server: OwnedServer | None) -> OwnedServer:
        booted = self.booter().boot(None, what="baseline", again=server)
        self._open.append(booted)
        self._prove_plain(booted)
        return booted

    def log_text(self) -> str | None:
        """Return the log of every boot of the drafter's server; None if there is none or it cannot be seen."""
        server = self.drafter
        return None if server is None or not server.vouched else self._past_logs + server.own_log_text()

    def _question(self) -> Question | None:
        """Return what a stored baseline must have been asked; None where a part of it is not known."""
        checked, place = self._files.checkpoint(), self._files.preflight().place
        if place is None or place.engine.version is None or checked.target_digest is None:
            return None
        return Question(
            target=checked.target_digest,
            engine=place.engine.version,
            gpus=tuple(gpu.name for gpu in place.gpus),
            workload=self.workload().digest,
            thinking=self._profile.target.thinking,
            max_new_tokens=self._profile.target.max_new_tokens,
            concurrency=self._settings.concurrency[0],
        )

    @property
    def known_baseline(self) -> KnownBaseline | None:
        """The stored or declared baseline, if the probe came to ask for one."""
        found: Baseline | None = self._once.peek("baseline")
        return None if found is None else found.known

    def keep_baseline(self, throughput: Throughput) -> None:
        """Store the baseline that was measured in this pass, for later runs of the same question."""
        if self._settings.server is None:
            self._stored.keep(throughput, self.booter().spec(None), self._question())

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
        steps = ", ".join(map(str, sorted(candidates)))
        what = f"drafter, steps {steps} in one boot" if candidates else f"drafter {setting}"
        server = booter.boot(staged, what=what, setting=setting, candidates=candidates)
        self._open.append(server)
        try:
            info, spec = server.client.server_info(), booter.spec(staged, setting=setting, candidates=candidates)
            require(self._proofs(server, info, spec, self._canary(server)))
        except BaseException:
            server.close()
            raise
        return server

    @contextmanager
    def blind(self) -> Iterator[Server]:
        """Boot the blind control, in the place of the drafter's server where it does not fit beside it."""
        with self.room(), self._boot(self._files.staged_blind().path, what="blind control") as blind:
            yield blind

    @contextmanager
    def room(self) -> Iterator[bool]:
        """Make room for one more server: where it does not fit, the drafter's is down meanwhile and up again after.

        Yields whether the drafter's server stayed up.
        """
        server = self.server()
        crowded = not self.booter().fits(servers=2 + len(self._baselines.servers))
        moved = server if crowded and isinstance(server, OwnedServer) else None
        if moved:
            moved.suspend()
        yield moved is None
        if moved:
            self._boot_again(moved)

    def wants_blind(self) -> bool:
        """Tell whether a blind control is asked for: by option, by profile, else wherever boots are cheap."""
        if self._settings.server is not None:
            return False
        asked = self._settings.blind
        wanted = self._profile.drafter.blind if asked is None else asked
        return self.booter().place.device == "cpu" if wanted is None else wanted

    @property
    def device(self) -> str:
        """Where the drafter's server runs: cuda, cpu, or attached."""
        return "attached" if self._settings.server else self.booter().place.device

    def torch(self) -> str | None:
        """Return the version of torch that owned servers run; None for an attached one, or before it is known."""
        found: Preflight | None = self._once.peek("preflight")
        return found.place.engine.torch if found is not None and found.place is not None else None

    @property
    def exact_alone(self) -> bool:
        """Whether the drafter's server says that it runs in float32 on a CPU (on a GPU float32 may mean TF32)."""
        return _exact(self._once.peek("info"))

    @property
    def exact(self) -> bool:
        """Whether the baseline says so too; False where either was not asked yet."""
        return self.exact_alone and _exact(self._once.peek("baseline info"))

    def peek_info(self) -> ServerInfo | None:
        """Return what the drafter's server said of itself, if it was asked yet."""
        info: ServerInfo | None = self._once.peek("info")
        return info

    def baseline_differences(self) -> dict[str, Any] | None:
        """Return every effective difference of the two servers outside ``speculative_*``; None without both."""
        plain: ServerInfo | None = self._once.peek("baseline info")
        info = self.peek_info()
        if plain is None or info is None:
            return None
        return {key: list(values) for key, values in differences(plain, info).items()}

    @property
    def drafter(self) -> Server | None:
        """The drafter's server if it was booted, proved or not."""
        server: Server | None = self._once.peek("server")
        return server

    def close(self) -> None:
        """Stop this drafter's own servers; the baseline is shared and stays."""
        while self._open:
            self._open.pop().close()


def _exact(info: ServerInfo | None) -> bool:
    return info is not None and (info.effective().get("device"), info.effective().get("dtype")) == ("cpu", "float32")
