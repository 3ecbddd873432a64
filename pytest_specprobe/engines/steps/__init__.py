"""One server, several step counts: a plug-in that pins SGLang's adaptive runtime between requests.

``environment`` and ``adaptive_config`` say how to start the child; the ``overlay`` folder is what they put on its
path. Nothing here imports torch or SGLang.
"""

from pytest_specprobe.engines.steps.launch import OVERLAY, PIN_KEY, adaptive_config, environment

__all__ = ["OVERLAY", "PIN_KEY", "adaptive_config", "environment"]
