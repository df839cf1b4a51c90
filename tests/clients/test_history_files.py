"""`shortlist import --history`: each row counts once, at the time when it was."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oracle import ridge_estimate
from server.cli import main
from service_process import Service, serving
from shortlist_client import Client

Run = Callable[..., tuple[int, str, str]]
ARMS = {"a": [1.0, 0.0], "b": [0.5, 1.0], "7": [1.0, 1.0]}
HOUR_MS = 3_600_000
NAMES = ["--key-column", "user", "--arm-column", "sku", "--value-column", "clicked"]
TIMED = [*NAMES, "--at-column", "ts"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("history")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, with a bandit that has learned nothing."""
    with Client(service.url) as client:
        for bandit in list(client.bandits()):
            client.delete_bandit(bandit.id)
        client.put_catalogue("c", dim=2)
        client.upsert_arms("c", list(ARMS.values()), ids=list(ARMS))
        client.put_bandit(
            "b",
            catalogue="c",
            policy="linear_ts",
            scope="per_key",
            half_life_s=3_600,
            ridge=1.0,
            intercept=False,
        )
        yield client


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["import", "--history", *map(str, arguments), "--url", service.url])
        shown = capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if not line.startswith(("checked: ", "sent: "))]
        return status, shown.out, "\n".join(errors)

    return run


def text(at: Path, content: str, name: str = "clicks.csv") -> Path:
    (at / name).write_text(content)
    return at / name


def await_theta(client: Client, key: str, observations: int) -> list[float]:
    client.observe("b", [{"id": f"wait-{time.time_ns()}", "key": "other", "arm": "a", "value": 0}], wait=True)
    learner = client.get_learner("b", key)
    assert learner.observations == observations
    return list(learner.theta)


def test_rows_count_once_at_their_time_however_often_they_are_imported(
    client: Client, run: Run, tmp_path: Path
):
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms - age * HOUR_MS for age in (0, 1, 5)]
    rows = [f"u1,{arm},{value},{at}" for arm, value, at in zip("aba", (1, 1, 0), times, strict=True)]
    path = text(tmp_path, "user,sku,clicked,ts\n" + "\n".join(rows) + "\n")
    assert run("b", path, *TIMED) == (0, "3 rows: 3 counted, 0 were known\n", "")
    again = text(tmp_path, "clicked;ts;user;sku\n" + "".join(
        f"{value};{at};u1;{arm}\n" for arm, value, at in zip("aba", (1, 1, 0), times, strict=True)
    ), "other.csv")  # fmt: skip
    assert run("b", path, again, *TIMED) == (0, "6 rows: 0 counted, 6 were known\n", "")
    expected = ridge_estimate([(ARMS["a"], 1.0), (ARMS["b"], 1.0), (ARMS["a"], 0.0)], [1.0, 0.5, 2.0**-5])
    np.testing.assert_allclose(await_theta(client, "u1", 3), expected, rtol=1e-6)


@pytest.mark.rest
def test_equal_rows_without_a_time_are_different_ones_in_all_parts_of_an_input(
    client: Client, run: Run, tmp_path: Path
):
    folder = tmp_path / "clicks"
    folder.mkdir()
    for number in range(3):
        text(folder, "user,sku,clicked\n" + "u,a,1\n" * 2, f"part-{number}.csv")
    assert run("b", folder, *NAMES) == (0, "6 rows: 6 counted, 0 were known\n", "")
    more = text(tmp_path, "user,sku,clicked\nu,a,1\n")
    status, said, _ = run("b", *sorted(folder.iterdir()), more, *NAMES)
    assert (status, said.splitlines()) == (
        0,
        [
            "7 rows: 1 counted, 6 were known",
            "without --at-column a row that equals one of an earlier import is that one",
        ],
    )
    await_theta(client, "u", 7)


def test_new_keys_are_served_by_the_whole_history_at_once(client: Client, run: Run, tmp_path: Path):
    client.put_bandit("p", catalogue="c", policy="sub_ts", scope="per_key")
    for keys, last in (
        (3, "there is no prior yet: it needs rewards of five keys"),
        (12, "the prior was fitted to 24 rewards of 12 keys"),
    ):
        rows = "".join(f"u{n},a,1\nu{n},b,{n % 2}\n" for n in range(keys))
        status, said, _ = run("p", text(tmp_path, f"user,sku,clicked\n{rows}"), *NAMES)
        assert status == 0
        assert last in said.splitlines()
    assert client.get_prior("p").keys == 12
    assert client.choose("p", key="new").prior_version == client.get_prior("p").version


@pytest.mark.rest
@pytest.mark.parametrize("true", [0.0, 1.0])
def test_arms_have_effects_when_the_command_has_ended(client: Client, run: Run, tmp_path: Path, true: float):
    """A table that has one user after another: of each a learner must know something before arms learn."""
    rng = np.random.default_rng(5)
    features, effects = rng.normal(size=(30, 3)), true * rng.normal(size=30)
    name = f"films-{true:.0f}"
    client.put_catalogue(name, dim=3)
    client.upsert_arms(name, features, ids=[f"f{n}" for n in range(30)])
    client.put_bandit("e", catalogue=name, policy="sub_ts", scope="per_key", arm_effects="auto")
    lines = ["user,sku,clicked"]
    for user in range(50):
        theta = rng.normal(size=3)
        # Users had what they like, so an arm is not seen by everybody alike.
        had = np.argsort(-features @ theta - rng.gumbel(size=30))[:16]
        values = (features @ theta + effects + 0.5 * rng.normal(size=30))[had]
        lines += [f"u{user},f{arm},{value}" for arm, value in zip(had.tolist(), values.tolist(), strict=True)]
    path = text(tmp_path, "\n".join(lines))
    status, said, _ = run("e", path, *NAMES)
    assert (status, said.splitlines()[-2]) == (0, "the prior was fitted to 800 rewards of 50 keys")
    shown = client.list_arm_effects("e", limit=100)
    assert said.splitlines()[-1] == f"arms have effects of {shown.spread:.2g} beyond their features"
    # All but the first sixteenth, before which there was no prior: a batch may end between two of a user.
    assert 740 <= shown.rewards <= 750
    again = run("e", path, *NAMES)[1].splitlines()
    assert again[0] == "800 rows: 0 counted, 800 were known"
    if not true:
        assert shown.spread < 0.5  # of rewards whose parts by features have a deviation of 1.7
        return
    assert 0.7 < shown.spread < 1.4
    by_arm = {each.arm: each.effect for each in shown.items}
    assert np.corrcoef([by_arm[f"f{n}"] for n in range(30)], effects)[0, 1] > 0.9
    # Somebody new is served by them at once.
    first = client.dry_run("e", key="new", k=30, seed=1)
    assert first.effects_version == shown.version
    order = [int(arm.id[1:]) for arm in first.arms]
    assert np.corrcoef(effects[order], [arm.estimate for arm in first.arms])[0, 1] > 0.7


def test_what_the_bandit_refuses_is_told_with_its_first_row(client: Client, run: Run, tmp_path: Path):
    path = text(tmp_path, "user,sku,clicked\nu,a,1\nu,gone,1\nu,gone,0\n")
    status, said, _ = run("b", path, *NAMES)
    assert (status, said.splitlines()) == (
        0,
        [
            "3 rows: 1 counted, 0 were known",
            "2 rows were refused as unknown_arm, the first of them clicks.csv: row 2",
        ],
    )


HEAD = "user,sku,clicked,ts\nu,a,1,1700000000\n"
WRONG = {
    "no key": (HEAD + ",a,1,1700000000\n", "row 2: user: is missing"),
    "a value of another kind": (
        "user,sku,clicked,ts\n" + "u,a,1,1700000000\n" * 9 + "u,a,c4nary,1700000000\n",
        "row 10: clicked: must be a number",
    ),
    "no time": (HEAD + "u,a,1,\n", "row 2: ts: is missing"),
    "a time to come": (
        HEAD + "u,a,1,4000000000\n",
        "row 2: ts: is in the future",
    ),
    "a time long ago": (
        HEAD + "u,a,1,5\n",
        "row 2: ts: is before March 1973",
    ),
    "a time in another format": (
        "user,sku,clicked,ts\n" + "u,a,1,31.01.2026 18:30\n" * 40 + "u,a,1,2026-01-31 18:30\n",
        "row 41: ts: must be a date of the calendar, in the format that most of the column have",
    ),
    "several rows": (
        HEAD + ",a,1,1700000000\nu,a,,1700000000\n",
        "row 2: user: is missing; 2 rows are bad, in user 1, clicked 1; --skip-bad 2 leaves them out",
    ),
    "no column": ("user,sku,clicked\nu,a,1\n", "has no column ts, of user, sku, clicked"),
    "no rows": ("user,sku,clicked,ts\n", "there are no rows in it"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_sentence_names_row_and_field_and_nothing_is_learned(
    client: Client, run: Run, tmp_path: Path, name: str
):
    content, words = WRONG[name]
    status, said, err = run("b", text(tmp_path, content), *TIMED)
    assert (status, said) == (2, "")
    assert words in err
    assert "c4nary" not in err
    await_theta(client, "u", 0)


def test_bad_rows_may_be_left_out(client: Client, run: Run, tmp_path: Path):
    path = text(tmp_path, "user,sku,clicked\nu,,1\nu,,1\n")
    assert run("b", path, *NAMES)[2].strip().endswith("sku: is missing; all 2 rows are bad")
    path = text(tmp_path, "user,sku,clicked\nu,a,1\nu,,1\n")
    assert run("b", path, *NAMES, "--skip-bad", 1, "--dry-run")[0] == 0
    assert not path.with_name("clicks.csv.bad.csv").exists()
    status, said, _ = run("b", path, *NAMES, "--skip-bad", 1)
    assert (status, said.splitlines()) == (
        0,
        [f"1 bad row was left out: {path}.bad.csv", "1 row: 1 counted, 0 were known"],
    )
    with path.with_name("clicks.csv.bad.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"row": "2", "field": "sku", "value": "", "reason": "is missing"}
        ]


def test_what_cannot_be_a_history_of_this_bandit_is_refused(client: Client, run: Run, tmp_path: Path):
    path = text(tmp_path, "user,sku,clicked\nu,a,1\n")
    client.put_bandit("g", catalogue="c", policy="linear_ts", context={"dim": 2})
    client.put_bandit("s", catalogue="c", policy="linear_ts", signals={"like": {}})
    for bandit, flags, words in (
        ("b", NAMES[2:], "--key-column: the bandit b learns for each key"),
        ("g", NAMES, "--key-column: the bandit g is of scope global"),
        ("g", NAMES[2:], "the bandit g has context"),
        ("s", NAMES[2:], "the bandit s has signals"),
        ("none", NAMES, "404 not_found"),
        ("b", NAMES[:2], "--arm-column: --history needs it"),
        ("b", [*NAMES, "--id", "sku"], "--id: belongs to an import of arms"),
    ):
        status, said, err = run(bandit, path, *flags)
        assert (status, said) == (2, ""), bandit
        assert words in err


ORDERS = [
    "--event-column",
    "order",
    "--key-column",
    "customer",
    "--arm-column",
    "sku",
    "--value-column",
    "price",
]


def orders(at: Path) -> Path:
    """Of a choice that was made, of an item that was not shown, and of an order without a choice."""
    rows = ["o1,u1,{},9.50", "o1,u1,other,30", "o2,u2,{},7", "o9,u1,a,5"]
    return text(at, "order,customer,sku,price\n" + "\n".join(rows) + "\n", "orders.csv")


def offered(client: Client, path: Path) -> list[str]:
    """Choose for the orders of the file, and fill in what was shown."""
    shown = [client.choose("b", key=f"u{n}", event_id=f"o{n}").arms[0].id for n in (1, 2)]
    path.write_text(path.read_text().format(*shown))
    return shown


def test_rows_with_events_are_rewards_of_choices(client: Client, run: Run, tmp_path: Path):
    path = orders(tmp_path)
    shown = offered(client, path)
    expected = [
        "4 rows: 2 counted, 0 were known",
        "1 row was refused as unknown_arm, the first of them orders.csv: row 2",
        "1 row was refused as unknown_event, the first of them orders.csv: row 4",
    ]
    status, said, err = run("b", path, *ORDERS)
    assert (status, said.splitlines(), err) == (0, expected, "")
    again = run("b", path, *ORDERS)[1].splitlines()
    assert again == ["4 rows: 0 counted, 2 were known", *expected[1:]]
    rows = {
        key: [(ARMS[arm], value)] for key, arm, value in zip(("u1", "u2"), shown, (9.5, 7.0), strict=True)
    }
    for key, own in rows.items():
        np.testing.assert_allclose(await_theta(client, key, 1), ridge_estimate(own, [1.0]), rtol=1e-6)
