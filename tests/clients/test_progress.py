"""Long work says how far it is: in plain lines where there is no terminal, by a bar where there is one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from shortlist_client import progress as module
from shortlist_client.progress import progress

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in (
        "algorithms/shortlist",
        "app",
        "clients/files",
        "clients/python",
        "examples",
        "server",
        "studies",
        "workers",
    )
    for path in (ROOT / folder).rglob("*.py")
)


def clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    times = iter(range(1_000_000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times) * step_s)


@pytest.mark.parametrize(
    ("step_s", "lines"),
    [
        (10.0, ["films: 0 of 3, 0 s", "films: 1 of 3, 10 s", "films: 2 of 3, 20 s", "films: 3 of 3, 30 s"]),
        (5.0, ["films: 0 of 3, 0 s", "films: 2 of 3, 10 s", "films: 3 of 3, 20 s"]),
        (0.1, ["films: 0 of 3, 0 s", "films: 3 of 3, 0 s"]),
    ],
)
def test_elsewhere_there_are_lines_not_too_many(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step_s: float, lines: list[str]
):
    clock(monkeypatch, step_s)
    assert list(progress(["a", "b", "c"], "films")) == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()) == ("", lines)


def test_work_that_breaks_off_is_not_told_as_done(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(TypeError), module.meter("films", 3, "films") as advance:
        advance([advance(2)])  # type: ignore[arg-type, list-item]
    assert capsys.readouterr().err == "films: 0 of 3, 0 s\n"


def test_the_first_line_comes_before_the_work(capsys: pytest.CaptureFixture[str]):
    next(progress(range(1_234), "films"))
    assert capsys.readouterr().err == "films: 0 of 1,234, 0 s\n"


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    assert list(progress(range(3), "films")) == [0, 1, 2]
    shown = capsys.readouterr().err
    assert "films: 100%" in shown
    assert "3/3" in shown


def test_no_long_work_has_a_bar_of_its_own():
    """A bar that hides where there is no terminal leaves a log without a sign of life."""
    users = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "tqdm"
    ]
    assert users == ["clients/python/shortlist_client/progress.py"]
