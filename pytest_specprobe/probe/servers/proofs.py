"""What the servers of one probe say of themselves, and what was proved of them."""

from collections.abc import Callable
from typing import Any

from pytest_specprobe.findings import Finding, failed, require
from pytest_specprobe.measure.request import Generation
from pytest_specprobe.probe.foreign_traffic import about_a_pass
from pytest_specprobe.probe.once import Once
from pytest_specprobe.probe.phases import PhaseLog
from pytest_specprobe.profiles import Target
from pytest_specprobe.server.boot import Server
from pytest_specprobe.server.http.info import ServerInfo, differences
from pytest_specprobe.server.proof import prove
from pytest_specprobe.server.spec import ServerSpec


class Proofs:
    """Proves the drafter's server before its first pass and after each, and every other server once.

    ``ask`` runs the canary request on a server.
    """

    def __init__(self, ask: Callable[[Server], Generation], *, phases: PhaseLog, once: Once) -> None:
        self._ask = ask
        self._phases = phases
        self._once = once
        self._after: tuple[Finding, ...] = ()
        self._plain: tuple[Finding, ...] = ()

    def drafter(self, server: Server, spec: Callable[[], ServerSpec]) -> None:
        """Prove the drafter's server, once.

        :raises CheckFailed: if it runs, but not what was asked for.
        """
        require(self._once.get("proof", lambda: self._first(server, spec)))

    def _first(self, server: Server, spec: Callable[[], ServerSpec]) -> tuple[Finding, ...]:
        with self._phases.phase("prove", "settings, log and a canary request"):
            return self._check(server, self._once.get("info", server.client.server_info), spec())

    def again(self, server: Server, spec: ServerSpec) -> ServerInfo:
        """Ask the drafter's server again, after a pass: accept thresholds, for one, can be changed as it runs.

        What was wrong after one pass stays wrong, though it may be put right before the next.

        :raises MeasurementError: if the server does not answer.
        """
        info = about_a_pass(server.client.server_info)
        if not failed(self._after):
            self._after = self._check(server, info, spec)
        return info

    def other(self, server: Server, spec: ServerSpec) -> None:
        """Prove a server that is not in the report: one more boot of the drafter.

        :raises CheckFailed: if it runs, but not what was asked for.
        """
        require(self._prove(server, server.client.server_info(), spec, self._ask(server)))

    def baseline(self, server: Server, target: Target) -> None:
        """Hold a baseline against what it must be; what fails is in ``all`` too, and makes no speedup.

        :raises CheckFailed: if it speculates, or listens, trusts code or logs other than it should.
        """
        info = server.client.server_info()
        spec = ServerSpec(model=info.model_path, tp=target.tp, trust_remote_code=target.trust_remote_code)
        self._plain = self._prove(server, info, spec, self._ask(server))
        require(self._plain)
        self._once.get("baseline info", lambda: info)

    def _check(self, server: Server, info: ServerInfo, spec: ServerSpec) -> tuple[Finding, ...]:
        return self._prove(server, info, spec, self._once.get("canary", lambda: self._ask(server)))

    @staticmethod
    def _prove(server: Server, info: ServerInfo, spec: ServerSpec, canary: Generation) -> tuple[Finding, ...]:
        return prove(
            info,
            spec=spec,
            log_text=server.log_text() if server.vouched else None,
            canary=canary,
            scrubbed=server.scrubbed if server.vouched else None,
            variables=server.variables,
            sockets=server.sockets(),
        )

    # --- what is known so far: nothing below asks a server ---------------------------------------------------

    def all(self) -> tuple[Finding, ...]:
        """Return every proof of what runs, passing ones too, as of the last pass; empty before the boot."""
        found: tuple[Finding, ...] = self._after or self._once.peek("proof") or ()
        return (*found, *(f for f in self._plain if f.status == "fail" or f.id not in {g.id for g in found}))

    @property
    def info(self) -> ServerInfo | None:
        """What the drafter's server said of itself, if it was asked yet."""
        info: ServerInfo | None = self._once.peek("info")
        return info

    @property
    def exact_alone(self) -> bool:
        """Whether the drafter's server says that it runs in float32 on a CPU (on a GPU float32 may mean TF32)."""
        return _exact(self.info)

    @property
    def exact(self) -> bool:
        """Whether the baseline says so too; False where either was not asked yet."""
        return self.exact_alone and _exact(self._once.peek("baseline info"))

    def differences(self) -> dict[str, Any] | None:
        """Return every effective difference of the two servers outside ``speculative_*``; None without both."""
        plain: ServerInfo | None = self._once.peek("baseline info")
        if plain is None or self.info is None:
            return None
        return {key: list(values) for key, values in differences(plain, self.info).items()}


def _exact(info: ServerInfo | None) -> bool:
    return info is not None and (info.effective().get("device"), info.effective().get("dtype")) == ("cpu", "float32")
