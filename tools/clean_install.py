"""Build the source distribution and from it the wheel, and audit with the wheel alone.

    python tools/clean_install.py                     # the embedded example
    python tools/clean_install.py audit.toml --reuse  # another audit, without downloads

The sources are copied first, so that nothing is left in the checkout, and the wheel is built from
the unpacked source distribution: what that lacks, the wheel lacks. The wheel is installed into a
new virtual environment, with its dependencies as ``constraints.txt`` has them. With ``--reuse`` the
dependencies are those of the Python that runs this script, and only Exhume comes from the wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")
_BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def built(kind: str, source: Path, out: Path) -> Path:
    """Build ``sdist`` or ``wheel`` of a folder of sources into ``out``."""
    command = [sys.executable, "-c", _BUILD, f"build_{kind}", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return out / done.stdout.split()[-1]


def wheel_through_source(folder: Path) -> Path:
    """Return the wheel that is built from the unpacked source distribution."""
    sources, out = folder / "sources", folder / "dist"
    out.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    sources.mkdir()
    for part in _PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, sources / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, sources / part)
    with tarfile.open(built("sdist", sources, out)) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return built("wheel", unpacked, out)


def environment(folder: Path, wheel: Path, *, reuse: bool) -> Path:
    """Return the folder of programs of a new environment with the wheel in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", f"--python={folder}", "install", "--quiet"]
    if reuse:
        places = {"base": str(folder), "platbase": str(folder)}
        site = Path(sysconfig.get_path("purelib", "venv", places))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    else:
        constraints = f"--constraint={ROOT / 'constraints.txt'}"
        subprocess.run([*pip, constraints, str(wheel)], check=True)
    return folder / "bin"


def main() -> None:
    """Build, install and audit in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("audit", nargs="?", type=Path, help="default: the embedded example")
    parser.add_argument("--reuse", action="store_true", help="use the dependencies installed here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = wheel_through_source(folder)
        print(f"built: {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
        programs = environment(folder / "environment", wheel, reuse=options.reuse)
        # Neither the checkout nor this environment's own Exhume may be found instead.
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        where = [str(programs / "python"), "-c", "import exhume; print(exhume.__file__)"]
        found = subprocess.run(where, env=clean, cwd=folder, capture_output=True, text=True)
        assert found.stdout.startswith(str(folder)), found.stdout or found.stderr
        command = [str(programs / "exhume"), "audit", "--quiet", "--out", str(folder / "run")]
        if options.audit is not None:
            command.append(str(options.audit.resolve()))
        subprocess.run(command, env=clean, cwd=folder, check=True)


if __name__ == "__main__":
    main()
