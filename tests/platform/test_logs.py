"""The log: for people on a terminal, for programs elsewhere, and what was asked for where something was."""

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.platform.logs import TextFormatter, set_up_logging
from fork_server import fork_server
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


def test_lines_are_aligned():
    lines = [TextFormatter(colored=False).format(record("HERE", level)) for level in (10, 20, 30, 40, 50)]
    assert len({line.index("HERE") for line in lines}) == 1


def test_a_terminal_is_colored_by_level_and_nothing_else_is():
    for level, color in ((logging.WARNING, "33"), (logging.ERROR, "31")):
        text = TextFormatter(colored=True).format(record("x", level))
        assert text.startswith(f"\x1b[{color}m")
        assert text.endswith("\x1b[0m")
        assert "\x1b" not in TextFormatter(colored=False).format(record("x", level))
    assert "\x1b" not in TextFormatter(colored=True).format(record("x"))


def test_what_is_logged_cannot_act_on_the_terminal():
    evil = "\x1b]0;title\x07\x1b[2J\r\u202e\x9b"
    error = ValueError(evil)
    failed = record(evil, exc_info=(ValueError, error, None), extra_field=evil)
    text = TextFormatter(colored=False).format(failed)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.count("\\x1b]0;title") == 3, "message, extra and error"


@pytest.mark.parametrize(("log_format", "is_json"), [("auto", True), ("json", True), ("text", False)])
def test_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], log_format: str, is_json: bool, monkeypatch: pytest.MonkeyPatch
):
    set_up_logging("info", log_format)  # type: ignore[arg-type]
    logging.getLogger("shortlist.x").info("said %d", 7, extra={"port": 1})
    logging.getLogger("shortlist.x").debug("not said")
    (line,) = capsys.readouterr().err.splitlines()
    if is_json:
        found = json.loads(line)
        assert (found["level"], found["logger"], found["message"], found["port"]) == (
            "INFO", "shortlist.x", "said 7", 1,
        )  # fmt: skip
        assert found["time"]
    else:
        assert LINE.fullmatch(line)
        assert "\x1b" not in line


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


@pytest.mark.slow
def test_a_service_that_is_started_on_a_terminal_says_where_it_is_in_words(tmp_path: Path):
    with terminal() as (ours, theirs):
        words = ["serve", "--port", "0", "--workers", "2", "--data-dir", str(tmp_path / "data")]
        place = {"output": Path(os.devnull), "errors": Path(os.ttyname(theirs))}
        process = fork_server().start(words, env=uncolored(NO_COLOR="1"), cwd=tmp_path, **place)
        try:
            said = ""
            while not re.search("is ready on http.*\r\n", said):  # a line may come in two parts
                said += os.read(ours, 10_000).decode()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    lines = said.split("\r\n")[:-1]
    assert all(map(LINE.fullmatch, lines)), said
    assert re.search(
        r"Shortlist \S+ is ready on http://127\.0\.0\.1:\d+ host=127\.0\.0\.1 port=\d+\r\n", said
    )
