"""The kernels on AArch64, on any machine: `python -m tests.aarch64 [--inputs N] [--folder F]`.

The extension is cross-compiled and runs under qemu, in Debian's Python for that processor with the
wheels that PyPI has for it. CRC-32C is computed by the processor's instruction, and by tables where
the processor is said to have none; then come the tests of records and all others that run on both
sides of kernels (`tests/sides.py`), and the fuzzers of the kernels with their twins as oracle.
Nothing is installed: all of it is in a folder, a temporary one unless told otherwise. Where a tool
is missing, that is said, and nothing is run.

On Debian: `apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.fuzz.sanitized import TARGETS

ROOT = Path(__file__).resolve().parents[1]
CROSS, EMULATORS = "aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "qemu-aarch64")
TOOLS = (CROSS, "apt-get", "dpkg")
DEBIAN = ("python3", "libstdc++6")
FLAGS = ("-std=c11", "-O3", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
EXTRAS = ("arrow", "tables", "client", "testing")
TEST_TOOLS = (
    *("aiokafka", "confluent-kafka", "hypothesis", "kafka-python", "psutil", "pandas"),
    *("pytest-timeout", "pytest-xdist"),
)
CRC_PROGRAM = """
#include "crc32c.c"
#include <stdio.h>
#ifdef WITHOUT_INSTRUCTION
unsigned long getauxval(unsigned long kind) { (void)kind; return 0; }
#endif
int main(void) {
    static uint8_t data[10000];
    for (int at = 0; at < 10000; at++) {
        data[at] = (uint8_t)(at * 31 + (at >> 3));
    }
    crc32c_prepare();
    if (crc32c(0, (const uint8_t *)"123456789", 9) != 0xE3069283u) {
        return 1;
    }
    for (size_t size = 0; size < 9990; size += 37) { /* at places that are not aligned too */
        if (update(~0u, data + size % 9, size) != update_by_tables(~0u, data + size % 9, size)) {
            return 2;
        }
    }
    puts(update == update_by_tables ? "tables" : "instruction");
    return 0;
}
"""
"""Says which way is taken, once both gave the same checksums."""


class Emulated:
    """A folder with all that runs of the other processor."""

    def __init__(self, folder: Path, emulator: str) -> None:
        self._folder = folder
        self._emulator = emulator
        self.system = folder / "system"
        self._wheels = folder / "wheels"
        self._package = folder / "package"

    def prepare(self) -> None:
        """Get Python and the wheels, unless they are here, and build the package."""
        if not self.system.exists():
            fetch_python(self._folder / "apt", self.system)
        if not self._wheels.exists():
            fetch_wheels(self.version(), self._wheels)
        shutil.rmtree(self._package, ignore_errors=True)
        built_here = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(ROOT / "src" / "lakelog", self._package / "lakelog", ignore=built_here)
        sources = sorted((ROOT / "native").glob("*.c"))
        place = self._package / "lakelog" / "_native.abi3.so"
        compile_for_it(*sources, "-shared", "-DPy_LIMITED_API=0x030B0000", "-o", place)

    def version(self) -> str:
        """Of Debian's Python."""
        found = sorted((self.system / "usr" / "bin").glob("python3.*[0-9]"))
        return found[-1].name.removeprefix("python")

    def checksum_way(self, *flags: str) -> str:
        """Which way CRC-32C is computed, by a program of its own."""
        source, program = self._folder / "crc.c", self._folder / "crc"
        source.write_text(CRC_PROGRAM)
        compile_for_it(*flags, f"-I{ROOT / 'native'}", source, "-o", program)
        command = [self._emulator, "-L", str(self.system), str(program)]
        return subprocess.check_output(command, text=True).strip()

    def run(self, *arguments: str) -> int:
        """Run Python; its exit status."""
        program = self.system / "usr" / "bin" / f"python{self.version()}"
        # Python starts itself again by the name it was given, which has to be one that runs here.
        launcher = self._folder / "python"
        launcher.write_text(
            f'#!/bin/sh\nexec {self._emulator} -L {self.system} -0 {launcher} {program} "$@"\n'
        )
        launcher.chmod(0o755)
        environment = {
            **os.environ,
            "PYTHONHOME": str(self.system / "usr"),
            "PYTHONPATH": os.pathsep.join(map(str, (self._package, self._wheels, ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [str(launcher), *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def compile_for_it(*arguments: str | Path) -> None:
    """One call of the cross-compiler; warnings are errors."""
    include = sysconfig.get_path("include")  # the same for all, with the limited API
    subprocess.run([CROSS, *FLAGS, f"-I{include}", *arguments], check=True)


def fetch_python(apt: Path, system: Path) -> None:
    """Unpack Debian's Python, from the lists of this machine and beside its own packages."""
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    places = {
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    options = [argument for key, value in places.items() for argument in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    install = ["install", "-y", "--download-only", *DEBIAN]
    subprocess.run(["apt-get", "-qq", *options, *install], check=True)
    for package in sorted((apt / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "--extract", package, system], check=True)


def fetch_wheels(version: str, wheels: Path) -> None:
    """What the package and its tests need, at the versions of this checkout."""
    extras = [argument for name in EXTRAS for argument in ("--extra", name)]
    target = ("--target", wheels, "--python-version", version, "--only-binary", ":all:")
    where = ("--python-platform", "aarch64-unknown-linux-gnu")
    needed = ("--constraint", "constraints.txt", "-r", "pyproject.toml", *extras, *TEST_TOOLS)
    uv = (Path(sys.executable).parent / "uv", "pip", "install", "--quiet")
    subprocess.run([*uv, *target, *where, *needed], cwd=ROOT, check=True)


def kernel_tests() -> list[str]:
    """The tests of records, and the others that ask for both sides."""
    tests = ROOT / "tests"
    files = [path for path in sorted(tests.rglob("test_*.py")) if path.parent.name != "records"]
    others = [str(path.relative_to(ROOT)) for path in files if "tests.sides" in path.read_text()]
    return ["tests/records", *others]


def check(emulated: Emulated, inputs: int) -> int:
    """Everything, one after the other; 0 if all is well."""
    emulated.prepare()
    ways = emulated.checksum_way(), emulated.checksum_way("-DWITHOUT_INSTRUCTION")
    print("CRC-32C by {}; without the instruction by {}".format(*ways), flush=True)
    if ways != ("instruction", "tables"):
        return 1
    chosen = [argument for name in TARGETS for argument in ("--target", name)]
    without_cache = ("-p", "no:cacheprovider", "-o", "timeout=0")
    tested = emulated.run("-m", "pytest", "-q", *without_cache, *kernel_tests())
    return tested or emulated.run("-m", "tests.fuzz", "--inputs", str(inputs), *chosen)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64", description=__doc__)
    parser.add_argument("--inputs", type=int, default=26_000)
    parser.add_argument("--folder", type=Path, help="keep what was fetched here")
    options = parser.parse_args()
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if emulator is None or missing:
        print(f"skipped: this machine lacks {', '.join(missing) or EMULATORS[0]}")
        return 0
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        return check(Emulated(options.folder.resolve(), emulator), options.inputs)
    with tempfile.TemporaryDirectory() as folder:
        return check(Emulated(Path(folder), emulator), options.inputs)


if __name__ == "__main__":
    sys.exit(main())
