"""The log: for people on a terminal, for programs elsewhere, and what was asked for where something was."""

import json
import logging
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.platform.logs import TextFormatter
from service_process import environment

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


SCRIPT = """
import logging
from app.platform.logs import set_up_logging
from app.platform.settings import Settings
settings = Settings()
set_up_logging(settings.log_level, settings.log_format)
logging.getLogger("shortlist").warning("not well", extra={"port": 1})
"""


def uncolored(**settings: str) -> dict[str, str]:
    """The environment without what whoever runs the tests wants of colors."""
    return {name: value for name, value in environment().items() if name != "NO_COLOR"} | settings


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: ours to read, and the one for a process."""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize(
    ("settings", "is_json", "is_colored"),
    [
        ({}, False, True),
        ({"NO_COLOR": "1"}, False, False),
        ({"SHORTLIST_LOG_FORMAT": "JSON"}, True, False),
        ({"SHORTLIST_LOG_FORMAT": "text"}, False, True),
    ],
)
def test_where_there_is_a_terminal(settings: dict[str, str], is_json: bool, is_colored: bool):
    with terminal() as (ours, theirs):
        command = [sys.executable, "-c", SCRIPT]
        subprocess.run(command, env=uncolored(**settings), stderr=theirs, timeout=60, check=True)
        said = os.read(ours, 10_000).decode().removesuffix("\r\n")
    if is_json:
        assert json.loads(said)["message"] == "not well"
        return
    assert said.startswith("\x1b[33m") == is_colored
    found = LINE.fullmatch(re.sub(r"\x1b\[[0-9;]*m", "", said))
    assert found, said
    assert found.groups() == ("WARNING", "shortlist", "not well port=1")
