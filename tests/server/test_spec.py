"""The command line and the environment of a server, and what is kept out of both."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specprobe.errors import ProfileError
from pytest_specprobe.profiles import Speculation
from pytest_specprobe.secret import Secret
from pytest_specprobe.server.child_environment import environment
from pytest_specprobe.server.gpu.selection import ranks_here
from pytest_specprobe.server.redaction import (
    redact_command,
    redact_text,
    redact_value,
)
from pytest_specprobe.server.secret_forms import is_secret_name
from pytest_specprobe.server.spec import ServerSpec, command, worker_commands
from pytest_specprobe.server.variables import forging_variables, speed_variables

SPECULATION = Speculation(num_steps=2, eagle_topk=1, num_draft_tokens=3)


def spec(**changes: object) -> ServerSpec:
    return ServerSpec(**{"model": "hub/model", "python": "py", **changes})  # type: ignore[arg-type]


def value_of(words: tuple[str, ...], flag: str) -> str:
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def test_the_three_speculation_settings_always_come_together() -> None:
    words = command(spec(drafter=Path("/d"), speculation=SPECULATION), host="127.0.0.1", port=9)
    assert words[:3] == ("py", "-m", "sglang.launch_server")
    flags = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert [value_of(words, flag) for flag in flags] == ["2", "1", "3"]
    assert value_of(words, "--speculative-algorithm") == "EAGLE3"
    assert value_of(words, "--speculative-draft-model-path") == "/d"


def test_a_baseline_is_the_same_command_without_speculation() -> None:
    shared = {"server_args": ("--mem-fraction-static", "0.4"), "tp": 8, "trust_remote_code": True}
    with_drafter = command(spec(drafter=Path("/d"), speculation=SPECULATION, **shared), host="h", port=1)
    baseline = command(spec(**shared), host="h", port=1)
    extra = [word for word in with_drafter if word not in baseline]
    assert not [word for word in baseline if "speculative" in word]
    assert [word for word in extra if word.startswith("--") and "speculative" not in word] == []
    assert "--disable-radix-cache" in baseline


@pytest.mark.parametrize(("device", "expected"), [("cpu", "cpu"), ("cuda", "cuda")])
def test_the_device_is_said_once(device: str, expected: str) -> None:
    assert value_of(command(spec(device=device), host="h", port=1), "--device") == expected


def test_server_args_come_last_so_that_a_profile_can_overrule() -> None:
    words = command(spec(server_args=("--decode-log-interval", "1")), host="h", port=1)
    assert words[-2:] == ("--decode-log-interval", "1")


@pytest.mark.parametrize("trusted", [False, True])
def test_remote_code_is_trusted_only_where_the_profile_says_so(*, trusted: bool) -> None:
    assert ("--trust-remote-code" in command(spec(trust_remote_code=trusted), host="h", port=1)) is trusted


@pytest.mark.parametrize(
    "words",
    [("--host", "::"), ("--port=1",), ("--api-key", "x"), ("--speculative-num-steps", "9"), ("--config", "f")],
    ids=lambda words: words[0],
)
def test_server_args_may_not_say_what_the_tool_says(words: tuple[str, ...]) -> None:
    with pytest.raises(ProfileError, match="server_args may not hold"):
        spec(server_args=words)


def test_multi_node_flags_pass_through() -> None:
    nodes = ("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:5000")
    assert command(spec(server_args=nodes, tp=16), host="h", port=1)[-6:] == nodes


def test_the_other_machines_of_a_server_run_the_same_command_with_their_rank() -> None:
    nodes = ("--nnodes", "3", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:5000")
    many = spec(tp=12, drafter=Path("/d"), speculation=SPECULATION, server_args=nodes)
    first = command(many, host="127.0.0.1", port=30000)
    isolated = ("env", "PYTHONSAFEPATH=1", "HF_MODULES_CACHE=/dev/null", *first)
    assert worker_commands(many) == ((*isolated, "--node-rank", "1"), (*isolated, "--node-rank", "2"))
    assert worker_commands(spec(tp=8)) == ()
    assert [ranks_here(12, nodes), ranks_here(12, ()), ranks_here(2, ("--nnodes=4",))] == [4, 12, 1]


def test_half_a_speculation_is_refused() -> None:
    with pytest.raises(ProfileError, match="go together"):
        spec(drafter=Path("/d"))


FORGED = (
    "SGLANG_SIMULATE_ACC_LEN",
    "SGLANG_SIMULATE_ACC_METHOD",
    "SGLANG_SIMULATE_ACC_TOKEN_MODE",
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    "SGLANG_IS_IN_CI",
    "SGLANG_TEST_CRASH_AFTER_STREAM_OUTPUTS",
    "PYTHONWARNINGS",
    "PYTEST_CURRENT_TEST",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "SPECPROBE_API_KEY",
    "SGLANG_API_KEY",
    "SGLANG_GRPC_PORT",
    "CI_JOB_JWT",
    "DATABASE_URL",
    "KUBECONFIG",
    "SSH_AUTH_SOCK",
    "NPM_CONFIG_USERCONFIG",
)


@pytest.mark.parametrize("name", FORGED)
def test_what_forges_or_leaks_is_scrubbed_and_named(name: str) -> None:
    env, scrubbed = environment(spec(), {name: "1", "PATH": "/bin"})
    assert name not in env
    assert scrubbed == (name,)
    assert env["PATH"] == "/bin"


NEEDED = (
    "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "HF_HOME",
    "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES",
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "LD_PRELOAD", "GLIBC_TUNABLES", "TORCH_HOME",
    "TORCHDYNAMO_DISABLE", "PYTORCH_CUDA_ALLOC_CONF", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE",
    "SGLANG_CPU_OMP_THREADS_BIND", "SSL_CERT_FILE", "MAX_JOBS", "CC", "TOKENIZERS_PARALLELISM",
)  # fmt: skip


def test_what_a_server_needs_passes() -> None:
    base = dict.fromkeys(NEEDED, "/x")
    env, scrubbed = environment(spec(), base)
    assert scrubbed == ()
    assert base.items() <= env.items()


def test_the_profile_passes_more_by_name_and_by_prefix_and_never_a_forging_one() -> None:
    base = dict.fromkeys(("MY_KEY_FILE", "OTEL_A", "OTEL_TOKEN", "SGLANG_SIMULATE_ACC_LEN", "SGLANG_GRPC_PORT"), "1")
    env, scrubbed = environment(spec(env_pass=("MY_KEY_FILE", "OTEL_*", "SGLANG_*")), base)
    assert {"MY_KEY_FILE", "OTEL_A"} <= env.keys()
    assert scrubbed == ("OTEL_TOKEN", "SGLANG_GRPC_PORT", "SGLANG_SIMULATE_ACC_LEN")
    assert "OTEL_TOKEN" in environment(spec(env_pass=("OTEL_TOKEN",)), base)[0], "a secret by its exact name"


@pytest.mark.parametrize("entry", ["A=1", "A B", "*", "", "a-b", "A*B", "SGLANG_IS_IN_CI", "SGLANG_SIMULATE_ACC_LEN"])
def test_an_env_pass_that_is_no_name_or_forges_is_refused(entry: str) -> None:
    with pytest.raises(ProfileError, match="env_pass may not hold"):
        spec(env_pass=(entry,))


STORE_SECRETS = {"s3": "AWS_SECRET_ACCESS_KEY", "gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_KEY"}


@pytest.mark.parametrize("scheme", STORE_SECRETS)
def test_a_remote_store_gets_the_credentials_of_its_own_kind_alone(scheme: str) -> None:
    base = dict.fromkeys((*STORE_SECRETS.values(), "HF_TOKEN", "GITHUB_TOKEN", "https_proxy"), "s")
    env, scrubbed = environment(spec(model=f"{scheme}://bucket/model"), base)
    assert set(base) - set(scrubbed) == {STORE_SECRETS[scheme], "https_proxy"}
    assert env[STORE_SECRETS[scheme]] == "s"


@pytest.mark.parametrize(
    ("given", "passes"),
    [("", None), (":", None), (".:src", None), (":/a::b:/c:", "/a:/c"), ("/a", "/a")],
)
def test_the_working_directory_is_on_no_servers_path(given: str, passes: str | None) -> None:
    env, _ = environment(spec(), {"PYTHONPATH": given})
    assert env.get("PYTHONPATH") == passes
    assert env["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize("more", [(), ("--nnodes", "2"), ("--nnodes=2",)])
def test_the_ranks_of_one_machine_meet_on_its_loopback(more: tuple[str, ...]) -> None:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    env, _ = environment(spec(server_args=more), {})
    assert [env.get(name) for name in names] == ([None, None] if more else ["lo", "lo"])
    env, _ = environment(spec(server_args=more), dict.fromkeys(names, "eth0"))
    assert [env[name] for name in names] == ["eth0", "eth0"]


def test_what_was_compiled_is_kept_in_the_users_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lay in the machine's /tmp, under the name of the passwd entry, which a container may not have."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/me/cache")
    monkeypatch.setattr("getpass.getuser", lambda: pytest.fail("no passwd entry is needed"))
    env, _ = environment(spec(), {})
    assert env["TORCHINDUCTOR_CACHE_DIR"] == "/home/me/cache/specprobe/torchinductor"
    env, _ = environment(spec(), {"TORCHINDUCTOR_CACHE_DIR": "/mine"})
    assert env["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_without_trust_there_is_no_folder_for_the_code_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/me/cache")
    for base in ({}, {"HF_MODULES_CACHE": "/mine"}):
        assert environment(spec(), base)[0]["HF_MODULES_CACHE"] == "/dev/null"
        trusted, _ = environment(spec(trust_remote_code=True), base)
        assert trusted["HF_MODULES_CACHE"] == base.get("HF_MODULES_CACHE", "/home/me/cache/specprobe/modules")


def test_what_changes_the_speed_is_told_and_nothing_else() -> None:
    fast = {"OMP_NUM_THREADS": "4", "LD_PRELOAD": "/lib/tc.so", "CUDA_LAUNCH_BLOCKING": "1", "SGLANG_X": "1"}
    other = {
        "PATH": "/bin", "SGLANG_API_KEY": "k", "TORCHINDUCTOR_CACHE_DIR": "/tmp", "CUDA_VISIBLE_DEVICES": "1",
        "NCCL_VERSION": "2", "NCCL_SOCKET_IFNAME": "eth0", "OMPX": "1",
        "TORCHELASTIC_RUN_ID": "other in every run",
    }  # fmt: skip
    assert speed_variables(fast | other) == fast
    assert list(speed_variables(fast | other)) == sorted(fast)


def test_a_local_target_needs_neither_hub_token_nor_proxy_and_a_hub_id_does(tmp_path: Path) -> None:
    variable = "HF_TOKEN"
    base = {variable: "t", "https_proxy": "http://p:1", "no_proxy": "corp"}
    local, scrubbed = environment(spec(model=str(tmp_path)), base)
    assert set(scrubbed) == set(base)
    assert local["HF_HUB_OFFLINE"] == "1"
    hub, scrubbed = environment(spec(), base)
    assert scrubbed == ()
    assert hub[variable] == "t"
    # SGLang's own warm-up request must not go through the proxy.
    assert hub["no_proxy"] == "corp,127.0.0.1,localhost"
    assert "HF_HUB_OFFLINE" not in hub


def test_what_the_caller_sets_for_the_child_is_set_and_forging_is_still_seen() -> None:
    env, _ = environment(spec(env=(("SGLANG_SIMULATE_ACC_LEN", "3"),)), {"SGLANG_SIMULATE_ACC_LEN": "2"})
    assert env["SGLANG_SIMULATE_ACC_LEN"] == "3"
    assert forging_variables(env) == ("SGLANG_SIMULATE_ACC_LEN",)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("api_key", True),
        ("--api-key", True),
        ("ssl_keyfile_password", True),
        ("tokenizer_path", False),
        ("max_total_tokens", False),
        ("speculative_token_map", False),
        ("speculative_num_draft_tokens", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("monkey", False),
    ],
)
def test_secret_names(name: str, *, secret: bool) -> None:
    assert is_secret_name(name.removeprefix("--")) is secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ServerArgs(api_key='abc123', port=1)", "ServerArgs(api_key=***, port=1)"),
        ("{'api_key': 'abc123', 'x': None}", "{'api_key': ***, 'x': None}"),
        ("api_key=None", "api_key=None"),
        ("--api-key abc123 --port 1", "--api-key *** --port 1"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer ***"),
        ("GET http://user:pass@host/x", "GET http://***@host/x"),
        ("token hf_abcdefghijklmnopqrst", "token hf_***"),
    ],
)
def test_secrets_are_hidden_in_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@given(secret=st.text("abcdef0123456789", min_size=16, max_size=48), depth=st.integers(0, 4))
def test_a_known_secret_is_hidden_at_any_depth(secret: str, depth: int) -> None:
    value: object = {"note": f"key is {secret}!", "list": [secret, {"password": "p"}]}
    for _ in range(depth):
        value = {"inner": [value]}
    assert secret not in repr(redact_value(value, secrets=(Secret(secret),)))
    assert secret not in " ".join(redact_command(("x", "--api-key", secret, f"--api-key={secret}")))
