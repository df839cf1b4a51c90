"""What commands share: the parser of their arguments, and the file that takes a result."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 2


class Parser(argparse.ArgumentParser):
    """What is wrong with the arguments is one line, as every other error; ``--help`` tells the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog.replace(' ', ': ', 1)}: {message}\n")


def writable(name: str) -> Path:
    """A file that can be written: found out before the long work, not after it."""
    try:
        Path(name).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be written: {error.strerror}") from None
    return Path(name)


def write(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
