"""SGLang plug-in of the CPU engine: lets the ``intel_amx`` attention backend be chosen on any CPU.

SGLang falls back to a backend that refuses EAGLE-3 when the CPU has no AMX, although this backend only calls
the two attention operations that the overlay provides. The platform fact is set through SGLang's own override;
the question that guards the compiled AMX library (``cpu_has_amx_support``) is another one and is left alone.
"""

import os
from importlib.metadata import version


def activate() -> None:
    """Set the platform fact. Raise SystemExit, naming both versions, in any SGLang but the pinned one.

    SGLang logs what a plug-in raises and boots on; an engine without its plug-in would measure something else,
    so a wrong version ends the process.
    """
    pinned = os.environ.get("SPECPROBE_CPU_ENGINE_SGLANG", "")
    found = version("sglang")
    if found.partition("+")[0] != pinned:
        raise SystemExit(f"specprobe CPU engine: SGLang {pinned or '(unset)'} is needed, this is {found}")
    from sglang.srt.runtime_context import override_platform

    override_platform(has_amx=True).install()
