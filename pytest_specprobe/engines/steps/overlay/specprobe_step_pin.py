"""SGLang plug-in that pins the number of draft steps between requests, through POST /set_internal_state.

SGLang's adaptive runtime holds one prebuilt state per candidate step count and swaps them by its own statistics.
Three hooks let a caller choose instead; a fourth makes every state of SGLang 0.5.17 as fast as its own boot. A
control request reaches every tensor-parallel rank in the same pass of its scheduler loop, so ranks cannot part ways.

Invariant: a pin is taken only while nothing runs, only for a step count the server was built for, and it stays until
the next one. Whatever is refused is answered ``false`` and said in the log.
"""

import inspect
import logging
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

logger = logging.getLogger(__name__)

KEY = "speculative_num_steps"
_PARAMS = "sglang.srt.speculative.adaptive_spec_params.AdaptiveSpeculativeParams"
# SGLang 0.5.14, 0.5.17 and 0.5.23 have all of these; 0.5.12 chooses steps elsewhere.
_SET_STATE = "sglang.srt.managers.scheduler.Scheduler.set_internal_state"
_CHOOSE = f"{_PARAMS}.get_steps_for_batch"
_LEARN = f"{_PARAMS}.on_verify_complete"
_CALLED = (
    "sglang.srt.managers.scheduler.Scheduler.is_fully_idle",
    "sglang.srt.speculative.adaptive_runtime_state.AdaptiveController.candidate_steps",
    "sglang.srt.speculative.adaptive_runtime_state.AdaptiveController._activate",
)
# 0.5.17 alone needs this one: see draft_extend_width.
_WIDTH = "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner.resolve_num_tokens_per_req"
_SPEC = "sglang.srt.runtime_context.get_spec"


class Pin:
    """The step count in force in this process (one scheduler each); None: SGLang decides."""

    def __init__(self) -> None:
        self.steps: int | None = None

    def set_internal_state(self, original: Callable[..., Any], scheduler: Any, request: Any) -> Any:
        """Around ``Scheduler.set_internal_state``: take a pin; every other key is SGLang's own."""
        wanted = request.server_args
        if KEY not in wanted:
            return original(scheduler, request)
        from sglang.srt.managers.io_struct import SetInternalStateReqOutput

        refused = self.take(scheduler, wanted)
        if refused:
            logger.warning("specprobe step pin refused: %s", refused)
        return SetInternalStateReqOutput(updated=not refused)

    def take(self, scheduler: Any, wanted: Mapping[str, float]) -> str:
        """Make the wanted step count current; return why not, empty if it is."""
        steps = wanted[KEY]
        controller = getattr(scheduler.draft_worker, "adaptive_controller", None)
        if len(wanted) > 1:
            return f"{KEY} comes alone, not with {', '.join(sorted(set(wanted) - {KEY}))}"
        if controller is None:
            return "this server does not run --speculative-adaptive"
        if steps not in controller.candidate_steps:
            return f"{steps} is none of the prebuilt step counts {controller.candidate_steps}"
        if not scheduler.is_fully_idle():
            return "requests are running"
        # At once, and not with the next batch: what the server says of itself is then true from here on.
        controller._activate(int(steps))  # noqa: SLF001 - there is no public way
        self.steps = int(steps)
        return ""

    def choose(self, original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        """Around ``get_steps_for_batch``: the pin, for every batch size."""
        return original(*args, **kwargs) if self.steps is None else self.steps

    def learn(self, original: Callable[..., int | None], *args: Any, **kwargs: Any) -> int | None:
        """Around ``on_verify_complete``: no statistics while pinned, since they could ask for another step count."""
        return original(*args, **kwargs) if self.steps is None else None


def draft_extend_width(original: Callable[..., int], *args: Any, **kwargs: Any) -> int:
    """Around ``resolve_num_tokens_per_req`` of SGLang 0.5.17: a draft-extend graph is as wide as its own state.

    0.5.17 takes the width from the arguments of the boot for every prebuilt state. So the graphs of all other step
    counts match no batch, and their draft extend runs kernel by kernel: 213 rounds/s on an H200 at 1, 2, 3 and 4
    steps against 282 at the 5 of the boot. 0.5.23 takes it from where both releases put it while they capture.
    """
    if kwargs.get("phase") != "draft_extend":
        return original(*args, **kwargs)
    width: int = pkgutil.resolve_name(_SPEC)().speculative_num_draft_tokens
    return width


def activate() -> None:
    """Register the hooks, all that pin or none.

    SGLang only logs a hook whose target is gone, and applies the others: a server pinned by half. So every name is
    looked up first. Without the hooks SGLang answers a pin with ``false``, which is how a caller finds out.
    """
    missing = [name for name in (_SET_STATE, _CHOOSE, _LEARN, *_CALLED) if not _there(name)]
    if missing:
        logger.warning("specprobe step pin is off: this SGLang has no %s", ", ".join(missing))
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    pin = Pin()
    for target, hook in ((_SET_STATE, pin.set_internal_state), (_CHOOSE, pin.choose), (_LEARN, pin.learn)):
        HookRegistry.register(target, hook, HookType.AROUND)
    if (
        _there(_WIDTH)
        and _there(_SPEC)
        and "server_args" in inspect.signature(pkgutil.resolve_name(_WIDTH)).parameters
    ):
        HookRegistry.register(_WIDTH, draft_extend_width, HookType.AROUND)


def _there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
