"""What is left of damaged append-only files is made readable for the server, once the loss is accepted.

Files that are gone leave the manifest, which is written anew when it is gone itself. An increment that cannot
be read to its end is cut off there, and a copy of it is kept. A base that cannot be read is left as it is.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from app.storage.append_only_files import AppendOnlyFiles, LiveFile

_CHECKER = "redis-check-aof"  # the server's binary is this program too, when it is called by this name


def salvage(files: AppendOnlyFiles, binary: Path) -> None:
    """Change the files so that the server of ``binary`` can read what is left. Raises OSError."""
    try:
        listed = files.listed() or files.last_listed()
    except ValueError:
        listed = files.last_listed()
    left = [file for file in listed if files.path(file).exists()]
    if files.manifest.parent.exists():
        _write_manifest(files.manifest, left)
    for file in left:
        if file.kind != "base" and not _is_readable(files.path(file), binary):
            path = files.path(file)
            shutil.copy2(path, path.with_name(f"{path.name}.damaged"))
            _run(binary, "--fix", str(path))


def _write_manifest(manifest: Path, files: Iterable[LiveFile]) -> None:
    lines = [f"file {file.name} seq {file.number} type {file.kind[0]}\n" for file in files]
    if lines:
        new = manifest.with_name(f"temp-{manifest.name}")
        new.write_text("".join(lines))
        new.replace(manifest)
    else:  # the server begins with an empty store
        manifest.unlink(missing_ok=True)


def _is_readable(path: Path, binary: Path) -> bool:
    return _run(binary, str(path)) == 0


def _run(binary: Path, *arguments: str) -> int:
    command = [_CHECKER, *arguments]
    return subprocess.run(  # noqa: S603 - all arguments are our own
        command, executable=binary, input=b"y\n", capture_output=True, check=False
    ).returncode
