"""Which GPUs a server takes: told before it boots, so that two runs can keep out of each other's way."""

from collections.abc import Mapping, Sequence

from pytest_specprobe.server.gpu.nvidia_smi import gpu_indices
from pytest_specprobe.server.spec import ServerSpec, values_of


def gpus_of(spec: ServerSpec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the driver's uuids of the GPUs that a server takes; empty on a CPU, or where the driver names none.

    As SGLang counts: ``tp`` x ``--pp-size`` x ``--dp-size`` GPUs over ``--nnodes`` machines, from ``--base-gpu-id``
    in steps of ``--gpu-id-step``, among those that ``CUDA_VISIBLE_DEVICES`` leaves.
    """
    if spec.device != "cuda":
        return ()
    visible = visible_gpus(environ)
    args = spec.server_args
    first, step = _number(args, "--base-gpu-id", default=0), _number(args, "--gpu-id-step")
    wanted = range(first, first + ranks_here(spec.tp, args) * step, step)
    return tuple(visible[n] for n in wanted if n < len(visible))


def ranks_here(tp: int, server_args: Sequence[str]) -> int:
    """Return how many GPUs one machine gives to a server: all of them, or its share of ``--nnodes`` machines."""
    ranks = tp * _number(server_args, "--pp-size", "--pipeline-parallel-size")
    if "--enable-dp-attention" not in server_args:
        ranks *= _number(server_args, "--dp-size", "--data-parallel-size")
    return max(ranks // _number(server_args, "--nnodes"), 1)


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the uuids of the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, in its order."""
    return tuple(_visible(environ.get("CUDA_VISIBLE_DEVICES"), gpu_indices()))


def _visible(asked: str | None, known: Mapping[int, str]) -> list[str]:
    if asked is None:
        return [known[index] for index in sorted(known)]
    found = []
    for part in (word.strip() for word in asked.split(",")):
        if part.isdigit() and int(part) in known:
            found.append(known[int(part)])
        elif part.startswith(("GPU-", "MIG-")):
            # A uuid may be cut short as long as it is unique.
            found.append(next((uuid for uuid in known.values() if uuid.startswith(part)), part))
        else:
            # As CUDA does: what follows the first invalid one is invisible too.
            break
    return found


def _number(server_args: Sequence[str], *flags: str, default: int = 1) -> int:
    # The last one counts, as for any argument parser.
    given = [int(value) for value in values_of(server_args, *flags) if value.isdigit()]
    return max(given[-1], default) if given else default
