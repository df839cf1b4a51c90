"""The log: for people on a terminal, for programs elsewhere, and what was asked for where something was."""

import logging
import os
import pty
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.platform.logs import TextFormatter

pytestmark = pytest.mark.rest

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (\w+) +(\S+) +(.*)")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Other tests log as they did."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.error")
    level, handlers, of_uvicorn = root.level, list(root.handlers), uvicorn.level
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    uvicorn.setLevel(of_uvicorn)


def record(message: str, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "shortlist.x", "levelno": level, "msg": message, **extra})
    made.levelname = logging.getLevelName(level)
    return made


def test_a_line_has_time_level_logger_message_and_extras():
    text = TextFormatter(colored=False).format(
        record("request", route="/v1", status=500, note="a b", none="")
    )
    found = LINE.fullmatch(text)
    assert found, text
    assert found.groups() == ("INFO", "shortlist.x", "request route=/v1 status=500 note='a b' none=''")


def test_what_is_logged_cannot_act_on_the_terminal():
    evil = "\x1b]0;title\x07\x1b[2J\r\u202e\x9b"
    error = ValueError(evil)
    failed = record(evil, exc_info=(ValueError, error, None), extra_field=evil)
    text = TextFormatter(colored=False).format(failed)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.count("\\x1b]0;title") == 3, "message, extra and error"


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: ours to read, and the one for a process."""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
