"""`shortlist embed`: a catalogue of what people like, from tables of clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from server.cli import main
from service_process import Service, delete_all, serving
from shortlist_client import Client, errors

Run = Callable[..., tuple[int, str, str]]
COLUMNS = ["--key-column", "user", "--arm-column", "film", "--value-column", "stars"]
GENRES = ("drama", "comedy", "horror")
FILMS = 30  # three genres of ten; of each one that nobody has seen


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("embed")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, which has a catalogue of films and no other one."""
    with Client(service.url) as client:
        delete_all(client)
        rule = {"fields": [{"name": "genre", "kind": "category", "values": list(GENRES)}]}
        client.put_catalogue("films", features=rule, display={"title": "title"})
        films = [
            {"id": f"f{number}", "metadata": {"genre": GENRES[number % 3], "title": f"Film {number}"}}
            for number in range(FILMS)
        ]
        client.upsert_arms("films", films)
        yield client


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["embed", *map(str, arguments), "--url", service.url])
        shown = capsys.readouterr()
        said = ("arms: ", "read: ", "filled: ")
        return status, shown.out, "\n".join(x for x in shown.err.splitlines() if not x.startswith(said))

    return run


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Of 90 keys, each of which gives five stars within one genre, and one star elsewhere."""
    rng = np.random.default_rng(0)
    lines = ["user,film,stars"]
    for user in range(90):
        seen = rng.choice(FILMS - 3, 18, replace=False).tolist()
        lines += [f"u{user},f{number},{5 if number % 3 == user % 3 else 1}" for number in seen]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_films_are_near_what_the_same_people_like(client: Client, run: Run, ratings: Path):
    asked = ["--history", ratings, *COLUMNS, "--liked", "4", "--catalogue", "films-2", "--from", "films"]
    status, shown, said = run(*asked, "--dim", "3", "--dry-run")
    assert (status, said) == (0, "")
    assert "90 keys liked 27 of 30 arms" in shown
    likes = sum(line.endswith(",5") for line in ratings.read_text().splitlines())
    assert f"{likes} of 1,620 rows count as liked: from 4 on" in shown
    assert "3 arms were liked by nobody" in shown
    near = [line.removeprefix("near ").split(": ") for line in shown.splitlines() if line.startswith("near ")]
    assert len(near) == 10
    for film, others in near:
        numbers = [int(each.split()[1]) for each in [film, *others.split(", ")]]
        assert len({number % 3 for number in numbers}) == 1
    for auto in ([], ["--dim", "auto"]):
        status, shown, said = run(*asked, *auto, "--dry-run")
        assert (status, said) == (0, "")
        assert "27 numbers keep 100% of it" in shown, "all that 27 arms tell apart, as it is fewer than 32"
    with pytest.raises(errors.NotFound):
        client.get_catalogue("films-2")
    client.put_bandit("home", catalogue="films", policy="sub_ts", scope="per_key")
    status, shown, said = run(*asked, "--dim", "3", "--then-move", "home")
    assert (status, said) == (0, "")
    assert client.get_bandit("home").catalogue == "films-2"
    found = client.get_catalogue("films-2")
    assert (found.follows, found.dim, found.size, found.filled) == ("films", 3, FILMS, True)
    assert found.behaviour is not None
    assert (found.behaviour.keys, found.behaviour.arms, found.behaviour.without) == (90, 27, 3)
    features = {
        arm.id: np.array(arm.features)
        for page in [client.list_arms("films-2", limit=100)]
        for arm in page.items
    }
    unseen, same, other = features["f27"], features["f0"], features["f1"]
    assert unseen @ same > 0.5 * np.linalg.norm(unseen) * np.linalg.norm(same)
    assert unseen @ other < 0.3 * np.linalg.norm(unseen) * np.linalg.norm(other)


def test_new_bandits_begin_with_what_the_history_says_of_people(client: Client, run: Run, ratings: Path):
    asked = ["--history", ratings, *COLUMNS, "--liked", "4", "--from", "films", "--dim", "3"]
    status, shown, said = run(*asked, "--catalogue", "films-2")
    assert (status, said) == (0, "")
    assert "new bandits on films-2 begin with what 90 keys have in common" in shown
    behaviour = client.get_catalogue("films-2").behaviour
    assert behaviour is not None
    assert behaviour.prior is not None
    assert (behaviour.prior.keys, behaviour.prior.directions) == (90, 3)
    client.put_bandit("home", catalogue="films-2", policy="sub_ts", scope="per_key")
    prior = client.get_prior("home")
    assert (prior.version, prior.keys, prior.history) == (1, 90, 90)
    status, shown, said = run(*asked, "--catalogue", "films-3", "--without-prior")
    assert (status, said) == (0, "")
    assert "begin with" not in shown
    behaviour = client.get_catalogue("films-3").behaviour
    assert behaviour is not None
    assert behaviour.prior is None


def test_a_bandit_whose_learners_cannot_come_along_is_said_how_to_move(
    client: Client, run: Run, ratings: Path
):
    """Fields that say nothing of who likes what: without learners that is no reason to refuse a move."""
    client.put_catalogue("noise", dim=2)
    features = np.random.default_rng(7).standard_normal((FILMS, 2))
    client.upsert_arms("noise", features, ids=[f"f{number}" for number in range(FILMS)])
    for bandit in ("new", "taught"):
        client.put_bandit(bandit, catalogue="noise", policy="sub_ts", scope="per_key")
    client.observe("taught", [{"id": "1", "key": "ann", "arm": "f1", "value": 1.0}], wait=True)
    asked = ["--history", ratings, *COLUMNS, "--liked", "4", "--from", "noise", "--dim", "3"]
    status, shown, said = run(*asked, "--catalogue", "new-2", "--then-move", "new")
    assert (status, said) == (0, "")
    assert "new moved from noise to new-2: 0 learners" in shown
    status, shown, said = run(*asked, "--catalogue", "taught-2", "--then-move", "taught")
    assert status == 2
    assert "taught-2 has the arms of noise with 3 features each, and follows it" in shown
    assert "too_different" in said
    assert "Make a new bandit with taught-2: it begins with what the history says of people" in said
    assert "`shortlist move taught taught-2 --carry none`" in said
    assert client.get_bandit("taught").catalogue == "noise"


def test_an_arm_that_was_passed_over_is_small_and_one_that_came_later_is_not(
    client: Client, run: Run, ratings: Path
):
    """Nobody liked f27 to f29, and no arm was liked once: nothing is expected of such an arm."""
    rows = ratings.read_text().splitlines()
    times = [f"2026-01-{1 + place % 20:02}" for place in range(len(rows) - 1)]
    timed = zip(rows, ["day", *times], strict=True)
    ratings.write_text("\n".join(f"{row},{day}" for row, day in timed) + "\n")
    later = [("f27", "2026-02-01", "drama"), ("f28", "2025-06-01", "comedy")]
    metadata = [{"id": arm, "metadata": {"genre": genre, "since": day}} for arm, day, genre in later]
    client.upsert_arms("films", metadata)
    asked = ["--history", ratings, *COLUMNS, "--liked", "4", "--dim", "3", "--from", "films"]
    status, _, said = run(*asked, "--catalogue", "x", "--since", "since")
    assert status == 2
    assert "--since: name the column of the times of the history with --at-column" in said
    since = ["--at-column", "day", "--since", "since"]
    status, _, said = run(*asked, *since[:3], "title", "--catalogue", "x")
    assert status == 2
    assert "--since: title of f0 must be a time" in said
    lengths = {}
    for name, options in (("plain", []), ("timed", since)):
        status, shown, said = run(*asked, *options, "--catalogue", name)
        assert (status, said) == (0, "")
        passed_over = "3 of these were" if name == "plain" else "2 of these were"
        assert f"{passed_over} passed over, and get 0.1% of that" in shown
        assert ("1 came later than the history" in shown) == (name == "timed")
        arms = client.list_arms(name, limit=100).items
        lengths[name] = {arm.id: float(np.linalg.norm(arm.features)) for arm in arms}
    assert lengths["timed"]["f27"] > 0.3
    assert lengths["plain"]["f27"] < 0.01
    assert lengths["timed"]["f28"] == lengths["plain"]["f28"]
    assert lengths["plain"]["f0"] > 0.3


@pytest.mark.rest
def test_a_log_is_judged_by_the_service(run: Run, client: Client, ratings: Path):
    client.put_bandit("home", catalogue="films", policy="sub_ts", scope="per_key", log={})
    status, shown, said = run("--bandit", "home", "--catalogue", "new")
    assert (status, shown) == (2, "")
    assert "the log says too little" in said
    assert "--from: not with --bandit" in run("--bandit", "home", "--catalogue", "new", "--from", "films")[2]
    assert "--history: name it" in run("--catalogue", "new", "--from", "films")[2]
    assert [each.id for each in client.catalogues()] == ["films"]
