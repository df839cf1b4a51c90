"""`make figures` keeps to its time, and names what it left out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from studies import figures
from studies.figures import Step

pytestmark = pytest.mark.rest


def writing(file: Path) -> Sequence[str]:
    return ["-c", f"open({str(file)!r}, 'w').close()"]


def test_a_step_that_takes_longer_is_stopped(capsys):
    waits = Step("waits", ["-c", "import signal; signal.pause()"], 0)
    assert figures.run([waits], 0.2) == 0
    assert "skipped: waits: it was stopped after" in capsys.readouterr().out


def test_a_step_that_fails_hinders_no_other_and_is_told(tmp_path, capsys):
    wrong, right = Step("wrong", ["-c", "raise SystemExit(3)"], 0), Step("right", writing(tmp_path / "f"), 0)
    assert figures.run([wrong, right], 60) == 1
    assert (tmp_path / "f").exists()
    assert "skipped: wrong: it failed with status 3" in capsys.readouterr().out


def test_all_steps_fit_into_the_time():
    todo = figures.steps(Path(sys.prefix))
    assert sum(step.seconds for step in todo) <= 60 * figures.MINUTES
    assert len({step.name for step in todo}) == len(todo)
