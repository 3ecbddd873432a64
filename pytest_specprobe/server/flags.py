"""What a profile's ``server_args`` may hold.

Refused is what this tool says itself, what opens another door to the server, and, without ``trust_remote_code``, what
loads code. SGLang's parser completes abbreviations (``--trust-rem``), so a word counts as every flag that it begins.
Names are those of SGLang 0.5.12 to 0.5.23.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from pytest_specprobe.reading import Bounds, Unreadable, parse_json

_BOUNDS = Bounds(size=1 << 20)
_KEY = "nothing: each boot gets a random key"
_SPECULATION = "drafters.NAME.speculation"
# What this tool says (and proves) itself: flag -> where it is said instead.
OWNED = {
    "--model-path": "targets.NAME.model",
    "--model": "targets.NAME.model",
    "--host": "nothing: an owned server listens on loopback only",
    "--port": "nothing: a free port is picked for each boot",
    "--device": "--specprobe-device",
    "--tp": "targets.NAME.tp",
    "--tp-size": "targets.NAME.tp",
    "--tensor-parallel-size": "targets.NAME.tp",
    "--trust-remote-code": "targets.NAME.trust_remote_code",
    "--config": "server_args",
    "--api-key": _KEY,
    "--admin-api-key": _KEY,
    "--speculative-algorithm": "drafters.NAME",
    "--speculative-algo": "drafters.NAME",
    "--speculative-draft-model-path": "drafters.NAME.source",
    "--speculative-draft-model": "drafters.NAME.source",
    "--speculative-num-steps": _SPECULATION,
    "--speculative-eagle-topk": _SPECULATION,
    "--speculative-num-draft-tokens": _SPECULATION,
    # A second door to the same server, which asks for no key or listens on every interface.
    **dict.fromkeys(
        (
            "--grpc-port",
            "--grpc-mode",
            "--smg-grpc-mode",
            "--grpc-http-sidecar-port",
            "--smg-http-sidecar-port",
            "--gated-launch-port",
            "--kv-events-config",
            "--load-publish-endpoint",
            "--decoupled-spec-bind-endpoint",
            "--disaggregation-mode",
            "--disaggregation-bootstrap-port",
            "--encoder-only",
            "--encoder-bootstrap-port",
            "--enable-http-worker-reuseport",
        ),
        "nothing: an owned server has one listening port, on loopback, with a key",
    ),
}


def _always(_: str) -> bool:
    return True


def _names_a_module(value: str) -> bool:
    return value.startswith("@") or not _is_plain(value, "module_path", "linker_module_path")


def _overrides_the_code(value: str) -> bool:
    return not _is_plain(value, "auto_map")


# Flags by which a server runs code that is not SGLang's: flag -> (what it does, whether it does so with this value).
LOADING: dict[str, tuple[str, Callable[[str], bool]]] = {
    "--custom-weight-loader": ("imports and runs a function of that name", _always),
    "--forward-hooks": ("imports and runs functions of these names", _always),
    "--speculative-token-map": ("reads a pickle, from the hub where there is no such file", _always),
    "--sidecar": ("runs a module of that name", _always),
    "--sidecar-args": ("runs a module beside the server", _always),
    "--enable-custom-logit-processor": ("runs code that comes with a request", _always),
    "--tool-server": ("runs tools that the model calls", _always),
    "--decrypted-config-file": ("puts an unchecked file in the place of config.json", _always),
    "--decrypted-draft-config-file": ("puts an unchecked file in the place of config.json", _always),
    "--modelopt-quant": ("loads the model with its remote code allowed", _always),
    "--modelopt-checkpoint-restore-path": ("reads a pickle", _always),
    "--quantize-and-serve": ("loads the model with its remote code allowed", _always),
    "--model-impl": (
        "loads the model with its remote code allowed, unless it is auto or sglang",
        lambda value: value not in ("auto", "sglang"),
    ),
    "--json-model-override-args": ("sets auto_map, or is no JSON object", _overrides_the_code),
    "--hicache-storage-backend-extra-config": ("imports a module", _names_a_module),
    "--unified-cache-external-linker-config": ("imports a module", _names_a_module),
}

# Whole flags of SGLang that are the beginning of a guarded one.
_WHOLE = frozenset({"--hicache-storage-backend"})


def problems(server_args: Sequence[str], *, trust_remote_code: bool) -> tuple[str, ...]:
    """Return everything that is wrong with ``server_args``, in their order; nothing if they may be given."""
    return tuple(
        dict.fromkeys(
            problem
            for at, word in enumerate(server_args)
            if word.startswith("--")
            for problem in _of_word(word, "".join(server_args[at + 1 : at + 2]), trust_remote_code=trust_remote_code)
        )
    )


def _of_word(word: str, after: str, *, trust_remote_code: bool) -> Iterator[str]:
    flag, equals, value = word.partition("=")
    if flag == "--":
        yield f"server_args may not hold {word!r}, after which SGLang takes no flag; leave it out"
    elif re.search(r"\s", flag):
        name, rest = flag.split(maxsplit=1) if len(flag.split()) > 1 else (flag.strip(), "VALUE")
        yield f"server_args holds {word!r} in one word; write {name!r}, {rest + equals + value!r}"
    else:
        for full in _meant(flag):
            said = flag if full == flag else f"{flag}, short for {full}"
            if full in OWNED:
                yield f"server_args may not hold {said}; it belongs to {OWNED[full]}"
            elif not trust_remote_code and LOADING[full][1](value if equals else after):
                yield f"server_args may not hold {said}, which {LOADING[full][0]}, without trust_remote_code = true"


def _meant(flag: str) -> tuple[str, ...]:
    """Return the guarded flags that SGLang's parser could take a word for: itself, else all that it begins."""
    # SGLang writes its flags with hyphens; the name of the setting is refused as well.
    spelled = flag.replace("_", "-")
    if spelled in _WHOLE:
        return ()
    guarded = (*OWNED, *LOADING)
    return (spelled,) if spelled in guarded else tuple(full for full in guarded if full.startswith(spelled))


def _is_plain(value: str, *keys: str) -> bool:
    """Tell whether a value is a JSON object that has none of these keys, however deep, and no key twice."""
    try:
        document = parse_json(value, _BOUNDS, numbers="any", unique=True)
    except Unreadable:
        return False
    return isinstance(document, dict) and _keys(document).isdisjoint(keys)


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()
