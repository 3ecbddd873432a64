"""What sets up a GPU host: pieces that were packed are joined, unpacked, compiled; the kernel's change is exact."""

import lzma
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.gpu.download import PINS, command, platforms
from benchmarks.gpu.pack import lean, pieces

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "benchmarks" / "gpu" / "install.py"
KERNEL = "sglang/kernels/ops/attention/decode_attention.py"
BEFORE = """\
    elif Lk == 288:
        BLOCK_DMODEL = 256
        BLOCK_DPE = 32
    else:
        BLOCK_DMODEL = triton.next_power_of_2(Lk)
        BLOCK_DPE = 0
    BLOCK_DV = triton.next_power_of_2(Lv)

    # 4-D view exposes head_num at dim 2
"""


def packed(tmp_path: Path, kernel: str) -> Path:
    site, archive, folder = tmp_path / "made", tmp_path / "site.tar.xz", tmp_path / "pieces"
    (site / KERNEL).parent.mkdir(parents=True)
    (site / KERNEL).write_text(f"def launch(Lk, Lv, has_mla, triton):\n    if Lk == 576:\n        pass\n{kernel}")
    with lzma.open(archive, "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        tar.add(site, arcname=".")
    folder.mkdir()
    for number, piece in enumerate(pieces(archive, 100)):
        (folder / f"site.{number:02}").write_bytes(piece)
    assert len(list(folder.iterdir())) > 2
    return folder


def install(pieces_of: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INSTALL), str(pieces_of), str(site), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_pieces_become_a_compiled_site_with_the_kernel_as_released(tmp_path: Path) -> None:
    assert install(packed(tmp_path, BEFORE), tmp_path / "site").returncode == 0
    assert (tmp_path / "site" / KERNEL).read_text().endswith(BEFORE)
    assert list((tmp_path / "site" / KERNEL).parent.glob("__pycache__/*.pyc"))


def test_small_latents_are_added_before_the_general_case(tmp_path: Path) -> None:
    run = install(packed(tmp_path, BEFORE), tmp_path / "site", "--small-latents")
    assert "was changed" in run.stdout
    added = "    elif has_mla:\n        BLOCK_DMODEL = Lv\n        BLOCK_DPE = Lk - Lv\n"
    assert (tmp_path / "site" / KERNEL).read_text().endswith(BEFORE.replace("    else:\n", f"{added}    else:\n"))


def test_another_release_is_left_alone(tmp_path: Path) -> None:
    run = install(packed(tmp_path, "    return None\n"), tmp_path / "site", "--small-latents")
    assert run.returncode == 1
    assert "is not SGLang 0.5.17's" in run.stderr


def test_the_kernel_wheel_loses_what_a_hopper_gpu_does_not_load(tmp_path: Path) -> None:
    wheel = tmp_path / "sglang_kernel-0.4.5-cp310-abi3-x.whl"
    names = (
        "sgl_kernel/flash_ops.abi3.so",
        "sgl_kernel/sm90/common_ops.abi3.so",
        "sgl_kernel/sm100/common_ops.abi3.so",
    )
    with zipfile.ZipFile(wheel, "w") as file:
        for name in names:
            file.writestr(name, b"x")
        file.writestr("sglang_kernel-0.4.5.dist-info/RECORD", "".join(f"{name},sha256=x,1\n" for name in names))
    (tmp_path / "out").mkdir()
    with zipfile.ZipFile(lean(wheel, tmp_path / "out")) as made:
        kept = made.read("sglang_kernel-0.4.5.dist-info/RECORD").decode().split()
        assert made.namelist() == [names[1], "sglang_kernel-0.4.5.dist-info/RECORD"]
    assert kept == [f"{names[1]},sha256=x,1"]


def test_wheels_are_asked_for_every_c_library_that_the_host_can_load() -> None:
    """Ubuntu 24.04 has glibc 2.39; a wheel that names 2.31 alone was missed by a list of the usual names."""
    names = platforms()
    assert {"manylinux_2_39_x86_64", "manylinux_2_31_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= {
        *names
    }
    assert "manylinux_2_40_x86_64" not in names
    words = command(Path("wheels"), "-r", str(PINS))
    assert [words[i + 1] for i, word in enumerate(words) if word == "--platform"] == list(names)
    assert "--no-deps" in words


def test_every_wheel_is_pinned_and_the_conversion_of_the_real_model_has_what_it_needs() -> None:
    lines = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    pins = [Requirement(line) for line in lines]
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pins)
    names = [pin.name for pin in pins]
    assert len(names) == len(set(names))
    assert {"sglang", "accelerate", "gguf", "transformers"} <= {*names}
