"""Which GPUs a server takes: told before it boots, so that two runs can keep out of each other's way."""

from collections.abc import Mapping

from pytest_specprobe.server.ownership import gpu_indices
from pytest_specprobe.server.spec import ServerSpec, values_of


def gpus_of(spec: ServerSpec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the driver's uuids of the GPUs that a server takes; empty on a CPU, or where the driver names none.

    As SGLang counts: ``tp`` x ``--pp-size`` x ``--dp-size`` GPUs over ``--nnodes`` machines, from ``--base-gpu-id``
    in steps of ``--gpu-id-step``, among those that ``CUDA_VISIBLE_DEVICES`` leaves.
    """
    if spec.device != "cuda":
        return ()
    visible = visible_gpus(environ)
    ranks = spec.tp * _number(spec, "--pp-size", "--pipeline-parallel-size") // _number(spec, "--nnodes")
    if "--enable-dp-attention" not in spec.server_args:
        ranks *= _number(spec, "--dp-size", "--data-parallel-size")
    first, step = _number(spec, "--base-gpu-id", default=0), _number(spec, "--gpu-id-step")
    wanted = range(first, first + max(ranks, 1) * step, step)
    return tuple(visible[n] for n in wanted if n < len(visible))


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


def _number(spec: ServerSpec, *flags: str, default: int = 1) -> int:
    # The last one counts, as for any argument parser.
    given = [int(value) for value in values_of(spec.server_args, *flags) if value.isdigit()]
    return max(given[-1], default) if given else default
