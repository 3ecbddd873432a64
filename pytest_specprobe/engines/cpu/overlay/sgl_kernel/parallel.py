"""What SGLang asks of a CPU of the Arm family before it forms its process groups.

On other CPUs it asks only where it uses the compiled AMX library, which it never does here.
"""

import torch


def register(library: torch.library.Library) -> None:
    """Register the operations of this module under ``torch.ops.sgl_kernel``."""
    library.define("init_cpu_threads_env(str cpu_ids) -> ()")
    library.define("initialize(int size, int rank) -> ()")
    library.impl("init_cpu_threads_env", init_cpu_threads_env, "CompositeExplicitAutograd")
    library.impl("initialize", initialize, "CompositeExplicitAutograd")


def init_cpu_threads_env(cpu_ids: str) -> None:
    """Do nothing: threads stay where the operating system puts them, as on every other CPU here.

    ``cpu_ids`` are the cores of one NUMA node that the compiled library would bind its threads to.
    """


def initialize(size: int, rank: int) -> None:
    """Accept a world of one process, which reduces nothing; raise NotImplementedError for a larger one."""
    if size != 1:
        raise NotImplementedError(f"the specprobe CPU engine runs one process, not tensor parallel {size}")
