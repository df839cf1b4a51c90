"""`shortlist begin`: from a table of items and one of clicks to a bandit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from server.cli import main
from service_process import Service, delete_all, serving
from shortlist_client import Client, errors
from shortlist_embeddings import beginning
from waiting import wait_until_sync

Run = Callable[..., tuple[int, str, str]]
ITEMS, USERS = 60, 120
KINDS = ("drums", "guitars", "keys")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("begin")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, which has nothing."""
    with Client(service.url) as client:
        delete_all(client)
        yield client


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["begin", *map(str, arguments), "--url", service.url])
        shown = capsys.readouterr()
        said = ("arms: ", "read: ", "checked: ", "sent: ", "filled: ")
        return status, shown.out, "\n".join(x for x in shown.err.splitlines() if not x.startswith(said))

    return run


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """Of three kinds that people like; every third of all is popular, which no column says."""
    path = tmp_path / "items.csv"
    rows = "".join(f"i{n},{KINDS[n % 3]},{100 + 7 * n % 50}\n" for n in range(ITEMS))
    path.write_text(f"sku,kind,price\n{rows}")
    return path


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    """Users like one kind, and what is popular of the others."""
    rng = np.random.default_rng(0)
    path = tmp_path / "clicks.csv"
    rows = [
        f"u{user},i{item},{int(rng.random() < chance)},2026-01-{1 + item % 28:02}\n"
        for user in range(USERS)
        for item in rng.choice(ITEMS - 3, 20, replace=False).tolist()  # nobody has seen the last three
        for chance in [(0.9 if item % 3 == user % 3 else 0.1) if item > 15 else 0.7]
    ]
    path.write_text("user,item,bought,ts\n" + "".join(rows))
    return path


@pytest.fixture
def asked(items: Path, clicks: Path) -> list[str | Path]:
    columns = ["--id", "sku", "--key", "user", "--arm", "item", "--value", "bought"]
    return ["shop", "--items", items, "--history", clicks, *columns]


def nothing_is_there(client: Client) -> bool:
    return not list(client.bandits()) and not list(client.catalogues())


def test_a_dry_run_says_what_it_would_be_worth_and_makes_nothing(client: Client, run: Run, asked: list[str]):
    status, shown, said = run(*asked, "--at", "ts", "--dry-run")
    assert (status, said) == (0, "")
    lines = shown.splitlines()
    assert "  kind: category, 3 values: drums, guitars, keys" in lines
    assert any("keys liked" in line and "of 60 items" in line for line in lines)
    table = {line[:18].strip(): line for line in lines if "±" in line}
    assert list(table) == ["bestsellers", "item-kNN", "EASE", "the table alone", "ours"]
    assert lines[-1] == "dry run: nothing was made"
    assert "with nothing known ours finds" in shown
    assert nothing_is_there(client)


def test_it_makes_a_bandit_that_begins_with_what_people_share(client: Client, run: Run, asked: list[str]):
    status, shown, said = run(*asked)
    assert (status, said) == (0, "")
    assert "the bandit shop chooses from shop-likes; people of the history begin as new ones do" in shown
    bandit, likes = client.get_bandit("shop"), client.get_catalogue("shop-likes")
    assert (bandit.catalogue, bandit.scope, bandit.prior) == ("shop-likes", "per_key", "learned")
    assert bandit.log is not None
    assert bandit.holdout is not None
    assert bandit.holdout["share"] == pytest.approx(0.1)
    assert (likes.follows, likes.size, likes.filled) == ("shop", ITEMS, True)
    assert likes.behaviour is not None
    assert likes.behaviour.without >= 3
    choice = client.choose("shop", key="new", k=5, seed=1)
    assert choice.prior_version == 1, "the first key is served by what the history says"
    assert sum(int(arm.id[1:]) <= 15 for arm in choice.arms) >= 4, "by what is popular, which no column says"
    # One who likes guitars is shown guitars, sooner than by rewards of others.
    for arm in [n for n in range(16, 40) if n % 3 == 1][:6]:
        client.observe("shop", [{"id": f"a{arm}", "key": "ann", "arm": f"i{arm}", "value": 1.0}], wait=True)
    chosen = client.choose("shop", key="ann", k=5, exclude=[f"i{n}" for n in range(16)], seed=1)
    assert sum(int(arm.id[1:]) % 3 == 1 for arm in chosen.arms) >= 4


def test_an_item_of_next_week_is_chosen_by_its_fields(client: Client, run: Run, asked: list[str]):
    assert run(*asked)[0] == 0
    client.upsert_arms("shop", [{"id": "late", "metadata": {"kind": "drums", "price": 120}}])

    def is_there() -> bool:
        try:
            return bool(client.get_arm("shop-likes", "late").features)
        except errors.NotFound:
            return False

    wait_until_sync(is_there, what="the item is taken over")
    late = np.array(client.get_arm("shop-likes", "late").features)
    table = np.array(client.get_arm("shop", "late").features)
    assert np.array_equal(late[: len(table)], table), "the table comes first"
    liked = [np.array(client.get_arm("shop-likes", f"i{n}").features)[-1] for n in range(ITEMS - 3)]
    assert min(liked) < late[-1] < max(liked), "as many likes as its fields promise"
    only = {"kind": "drums", "price": 120}
    assert [arm.id for arm in client.choose("shop", key="new", k=1, filter=only).arms] == ["late"]


@pytest.mark.rest
def test_people_of_the_history_may_begin_with_what_they_liked(client: Client, run: Run, asked: list[str]):
    status, shown, _ = run(*asked, "--people")
    assert status == 0
    assert f"; {USERS} of {USERS} people of the history begin with what they liked" in shown
    of_their_kind = 0
    for user in range(USERS):
        chosen = client.choose("shop", key=f"u{user}", k=5, exclude=[f"i{n}" for n in range(16)], seed=1)
        of_their_kind += sum(int(arm.id[1:]) % 3 == user % 3 for arm in chosen.arms)
    assert of_their_kind > 0.7 * 5 * USERS, "of all items a third is"
    assert client.get_learner("shop", "u1").observations == 60, "all arms, at most"


@pytest.mark.rest
def test_a_name_that_exists_is_refused_before_anything_is_read(client: Client, run: Run, asked: list[str]):
    assert run(*asked)[0] == 0
    before = [client.get_catalogue(name).version for name in ("shop", "shop-likes")]
    status, shown, said = run(*asked)
    assert (status, shown) == (2, "")
    assert "NAME: there is a bandit shop already: use another name" in said
    assert run(*asked, "--dry-run") == (status, shown, said), "what will be refused is not tried first"
    assert [client.get_catalogue(name).version for name in ("shop", "shop-likes")] == before
    client.delete_bandit("shop")
    client.delete_catalogue("shop-likes")
    client.put_catalogue("shop-likes", dim=2)
    assert "there is a catalogue shop-likes already" in run(*asked)[2]


def replaced(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.rest
@pytest.mark.usefixtures("client")
def test_a_time_that_is_none_is_named_where_times_are_asked_for(run: Run, asked: list[str], clicks: Path):
    replaced(clicks, "2026-01-05", "soon")
    assert run(*asked, "--dry-run")[0] == 0
    status, _, said = run(*asked, "--at", "ts", "--dry-run")
    assert status == 2
    assert "ts: must be a date" in said
    assert "leaves them out" in said
    status, shown, said = run(*asked, "--at", "ts", "--dry-run", "--skip-bad", "999")
    assert (status, said) == (0, "")
    assert "bad rows would be left out" in shown


@pytest.mark.rest
@pytest.mark.usefixtures("client")
def test_a_bad_cell_of_an_item_is_named_or_taken_for_missing(run: Run, asked: list[str], items: Path):
    replaced(items, ",107\n", ",unknown\n")
    status, _, said = run(*asked, "--dry-run")
    assert (status, "--bad-as-missing price takes such cells for missing" in said) == (2, True)
    status, shown, said = run(*asked, "--dry-run", "--bad-as-missing", "price")
    assert (status, said) == (0, "")
    assert "price: 2 bad cells are taken for missing, the first in row 2" in shown


@pytest.mark.rest
@pytest.mark.usefixtures("client")
def test_ids_of_another_kind_are_shown_beside_those_of_the_items(run: Run, asked: list[str], clicks: Path):
    header, *rows = clicks.read_text().splitlines()
    clicks.write_text("\n".join([header, *(row.replace(",i", ",00") for row in rows)]))
    status, _, said = run(*asked, "--dry-run")
    assert status == 2
    assert "does item, such as 00" in said
    assert "name what sku names there, such as i0?" in said


def test_a_stop_says_what_is_there_and_the_same_command_goes_on(
    client: Client, run: Run, asked: list[str], monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(beginning.embedding, "wait_filled", interrupted)
    status, _, said = run(*asked)
    assert status == 1
    assert "stopped: the catalogue shop and the catalogue shop-likes are there, and nothing else" in said
    assert not list(client.bandits())
    monkeypatch.undo()
    assert run(*asked)[0] == 0
    assert client.get_bandit("shop").catalogue == "shop-likes"
