"""The whole service does as a model in plain Python, through whatever is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_machine import play


def test_the_service_does_as_the_model(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, seeds=range(5), steps=40)


@pytest.mark.rest
def test_the_service_does_as_the_model_in_more_runs(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, seeds=range(5, 20), steps=40)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_service_does_as_the_model_for_long(store_url: str, tmp_path: Path) -> None:
    play(store_url, tmp_path, seeds=range(1_000, 1_100), steps=60)
