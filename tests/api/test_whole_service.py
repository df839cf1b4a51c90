"""The whole service does as a model in plain Python, through whatever is drawn."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from service_machine import WholeService


def play(store_url: str, folder: Path, *, plays: int, steps: int) -> None:
    """So many plays, up to the first that differs from the model: the error names its steps."""
    numbers = itertools.count()
    # A step takes as long as a hundred of other machines: a failing play is shown as it is.
    run_state_machine_as_test(
        lambda: WholeService(store_url, folder / f"{next(numbers)}"),
        settings=settings(max_examples=plays, stateful_step_count=steps, phases=[Phase.generate]),
    )


def test_the_service_does_as_the_model(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, plays=7, steps=30)


@pytest.mark.rest
def test_the_service_does_as_the_model_in_more_plays(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, plays=25, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_service_does_as_the_model_for_long(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, plays=100, steps=60)
