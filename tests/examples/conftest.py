"""Services that are forked, generated ratings in both MovieLens formats, and real ones."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from os import devnull
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples import service
from fork_server import ForkedProcess, fork_server
from movielens_files import movielens_1m, movielens_100k, real_movielens

__all__ = ["movielens_1m", "movielens_100k", "real_movielens"]

COMMAND = [sys.executable, "-c", service.SHORTLIST]


@pytest.fixture(scope="module", autouse=True)
def forked_services() -> Iterator[None]:
    """Examples in this process start `shortlist` from one that has loaded the code.

    Any other command, and examples that are processes of their own, start as they do elsewhere.
    """

    def start(words: Sequence[str], **place: Any) -> ForkedProcess | subprocess.Popen[bytes]:
        if list(words[:3]) != COMMAND:
            return subprocess.Popen(words, **place)
        log = Path(place["stderr"].name)
        return fork_server().start(
            words[3:], cwd=place["cwd"], env=place["env"], output=Path(devnull), errors=log
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
        yield
