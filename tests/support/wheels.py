"""Packages of the project as wheels, in environments that do not see the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".*", "build", "*.egg-info", "__pycache__", "docs", "node_modules")


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """What a command prints; it has to go well."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def pip(*words: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, cwd=cwd)


def build(folder: Path, sources: Iterable[Path]) -> dict[str, Path]:
    """By name: built as `pip install FOLDER` builds them, from copies without what earlier builds left."""
    for number, source in enumerate(sources):
        copy = folder / "sources" / str(number)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(*LEFT_OUT, "tests"))
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder / "built", copy, cwd=folder)
    return {path.name.split("-")[0]: path for path in (folder / "built").glob("*.whl")}


def environment(folder: Path, wheels: Iterable[Path]) -> Path:
    """The interpreter of a new environment that has these wheels."""
    venv.create(folder, with_pip=False, symlinks=True)
    interpreter = folder / "bin" / "python"
    for wheel in wheels:
        where = ["--python", interpreter, "install", "--no-deps", "--no-index", "--ignore-installed"]
        pip(*where, wheel, cwd=folder)
    return interpreter


def told(python: Path, *words: str, cwd: Path, **variables: str) -> str:
    """What a program prints. Packages of others are those of the tests; the checkout is not seen."""
    others = str(Path(httpx.__file__).parents[1])
    return run(python, *words, cwd=cwd, PYTHONPATH=others, PYTHONSAFEPATH="1", **variables)
