"""The demonstration: it plays over HTTP, learns, and leaves nothing behind."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples import demo, service
from examples.environments import Environment
from examples.play import Outcome, Player

pytestmark = pytest.mark.rest


def run_demo(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, float], str]:
    """Mean regret by policy, and everything that was printed."""
    assert demo.main(arguments) == 0
    text = capsys.readouterr().out
    found = re.findall(r"^  (\w[\w -]*?) +([\d.]+) \+- [\d.]+ \(standard error\)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}, text


@pytest.mark.slow
@pytest.mark.parametrize("data", ["movielens_100k", "movielens_1m"])
def test_movies(data: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(request.getfixturevalue(data))
    regret, text = run_demo(capsys, "--data", folder, "--users", "5", "--rounds", "40")
    assert list(regret) == ["Sub-TS", "most popular", "random"]
    assert regret["Sub-TS"] < 0.6 * min(regret["most popular"], regret["random"])
    choices = 5 * 40
    assert re.search(rf"reward, until applied .*\({choices} requests\)", text)
    assert re.search(
        rf"^{2 * choices + 4} requests", text, re.MULTILINE
    )  # a catalogue, a bandit, two arrivals
    assert len(re.findall(r"^  Sub-TS.*", text, re.MULTILINE)[1].split()) == 1 + 10  # the learning curve


def test_the_synthetic_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = tmp_path / "demo.json"
    drawn = tmp_path / "pictures" / "demo.svg"
    options = ("--json", str(kept), "--picture", str(drawn))
    regret, text = run_demo(capsys, "--runs", "2", "--rounds", "60", *options)
    assert f"a picture of it: {drawn}" in text
    assert "seed 1: standard errors and intervals are over the 2 learners of this one run" in text
    picture = ET.parse(drawn)
    assert len(picture.findall(".//{*}polyline")) == 4
    assert {each.text for each in picture.findall(".//{*}text")} >= {"Sub-TS", "most popular", "round"}
    rows = json.loads(kept.read_text())["rows"]
    assert {row["policy"]: round(row["regret"], 1) for row in rows} == regret
    assert list(regret) == ["Sub-TS", "exact TS", "most popular", "random"]
    assert max(regret["Sub-TS"], regret["exact TS"]) < 0.6 * regret["random"]
    assert "\nSub-TS earned more than random: " in text
    again, _ = run_demo(capsys, "--runs", "2", "--rounds", "60")
    assert again == regret


def play(game: Environment, *, repeats: bool) -> Outcome:
    with service.temporary_service() as server:
        return Player(game, server, threads=2, repeats=repeats, seed=1).play()
