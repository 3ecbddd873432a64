"""What a drafter was probed with: tool, machine, staging, server."""

from typing import Literal

from pydantic import Field, JsonValue

from pytest_specprobe.report.model.base import Amount, Count, Items, Model, Pair


class Machine(Model):
    """What the run was on."""

    cpu: str
    cores: Count | None
    memory_gib: Amount
    system: str
    python: str
    gpus: Items[str]
    gpu_driver: str | None = Field(default=None, description="Version of the GPU driver.")


class Tool(Model):
    """What wrote the report."""

    name: str
    version: str


class Staging(Model):
    """What staging made of the drafter's checkpoint."""

    source_digest: str = Field(description="SHA-256 over names and contents of the staged source files.")
    patched: dict[str, Pair] = Field(description="Edited keys of config.json: [old, new].")


class ServerReport(Model):
    """The drafter's server: what it is and how it was started."""

    version: str | None = Field(description="SGLang's own version.")
    torch: str | None = Field(default=None, description="Version of torch in the environment of an owned server.")
    command: Items[str] | None = Field(description="The command line of an owned server; null for an attached one.")
    boot_s: Amount | None = Field(description="Seconds from launch to ready; null for an attached server.")
    device: Literal["cuda", "cpu", "attached"]
    local_device: Literal["cuda", "cpu"] | None = Field(
        default=None,
        description=(
            "What it runs on, if that is known to be this machine; an attached server's is where a "
            "record vouches for it."
        ),
    )
    host: str | None = Field(
        default=None, description="Host of the URL of an attached server that nothing vouches for; null for others."
    )
    environment: dict[str, str] | None = Field(
        default=None,
        description="The server's environment variables that change its speed; null where they are not known.",
    )
    flags: dict[str, JsonValue] | None = Field(
        description="/server_info as the server resolved it, secrets redacted."
    )
    scrubbed: Items[str] = Field(description="Names of the environment variables that were kept from the server.")
    baseline_differences: dict[str, JsonValue] | None = Field(
        description=(
            "Effective settings outside speculative_* in which baseline and drafter server differ: "
            "[baseline, drafter]."
        )
    )
