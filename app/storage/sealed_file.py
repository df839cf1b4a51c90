"""A small JSON document on disk: whole or not there at all, and what was damaged is not taken for it."""

from __future__ import annotations

import json
import os
import secrets
import zlib
from pathlib import Path
from typing import Any


def write_sealed(path: Path, document: dict[str, Any]) -> None:
    """Replace the file in one step; it is synced first, so that no crash leaves half of it. Raises OSError.

    The folder is not synced: after a power failure the file may be the one before.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")  # several processes may write at a time
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump({"crc32": _seal(document), "document": document}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def read_sealed(path: Path) -> dict[str, Any] | None:
    """The document, None when there is no file. Raises ValueError when it is not as it was written."""
    try:
        sealed = json.loads(path.read_text("utf-8"))
        document: dict[str, Any] = sealed["document"]
        if sealed["crc32"] == _seal(document):
            return document
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path.name} is damaged")


def _seal(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())
