"""`make figures` keeps to its time, and names what it left out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from studies import figures
from studies.figures import Step

pytestmark = pytest.mark.rest


def test_a_step_that_takes_longer_is_stopped(capsys):
    waits = Step("waits", ["-c", "import signal; signal.pause()"], 0)
    assert figures.run([waits], 0.2) == 0
    assert "skipped: waits: it was stopped after" in capsys.readouterr().out


def test_all_steps_fit_into_the_time():
    todo = figures.steps(Path(sys.prefix))
    assert sum(step.seconds for step in todo) <= 60 * figures.MINUTES
    assert len({step.name for step in todo}) == len(todo)
