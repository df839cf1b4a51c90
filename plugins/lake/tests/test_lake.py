"""`shortlist export log --partition` and `shortlist rebuild`: each row once, and learners as they were."""

import base64
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given
from hypothesis import strategies as st

from app.platform.errors import ShortlistError
from app.records.records import LearnerState, bytes_to_state
from service_process import Service, run, serving
from shortlist_client import Client
from shortlist_lake import rebuild
from shortlist_lake.exporting import ExportLimits, export_lake
from shortlist_lake.files import MANIFEST, STAGING, Lake
from shortlist_lake.rebuilt_arms import rebuilt_arms
from shortlist_lake.storage import Storage
from shortlist_lake.writing import LOCK, LakeWriter
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

DIM = 3
ALL = ExportLimits(late_ms=-1_000)  # also the rows of this moment
BANDITS: dict[str, dict[str, Any]] = {
    "plain": {"reward": {"aggregate": "first"}},
    "keys": {"scope": "per_key", "reward": {"aggregate": "sum"}, "intercept": False},
    "fading": {"scope": "per_key", "half_life_s": 3},
    "more": {"scope": "per_key"},
    "bounded": {"reward": {"min": -9, "max": 9, "aggregate": "sum"}},
    "context": {"context": {"dim": 2}, "interactions": 2},
    "all": {"scope": "per_key", "context": {"dim": 2}},
    "revised": {"scope": "per_key", "half_life_s": 60, "reward": {"aggregate": "last"}},
    "placed": {"context": {"dim": 2}, "position": {"examination": [1.0, 0.3]}},
    "signals": {
        "scope": "per_key",
        "half_life_s": 60,
        "signals": {
            "click": {},
            "buy": {"default": 0.25},
            "spent": {"aggregate": "sum", "default": 0.5},
            "watched": {"aggregate": "last", "default": -1.0},
        },
        "reward": {"wait_s": 600},
    },
    "effects": {"scope": "per_key", "prior": "learned", "arm_effects": "auto", "half_life_s": 60},
    "match": {"scope": "per_key", "match": {"fields": [{"name": "km", "kind": "number"}]}},
    "said": {"context": {"dim": 2}, "match": {"fields": [{"name": "km", "kind": "number"}]}},
    "waits": {"scope": "per_key", "reward": {"wait_s": 0.2, "default": -0.5}, "half_life_s": 60},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service where bandits have learned in all ways that there are."""
    with serving(tmp_path_factory.mktemp("lake")) as service:
        with Client(service.url) as client:
            build(client)
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


def build(client: Client) -> None:
    rng = random.Random(1)
    client.put_catalogue("c", dim=DIM)
    client.upsert_arms("c", np.random.default_rng(0).normal(size=(12, DIM)), ids=[f"a{i}" for i in range(12)])
    for name, settings in BANDITS.items():
        client.put_bandit(name, catalogue="c", policy="sub_ts", log={}, **settings)
    for turn in range(3):
        if turn:  # so that some rewards are for arms as they were
            client.upsert_arms("c", [[turn, 1.0, 2.0]], ids=[f"a{turn}"])
        for name in BANDITS:
            teach(client, name, rng, f"{turn}")
        if not turn:
            wait_until_sync(lambda: rests(client), what="all is learned")
            client.refresh_prior("effects")
            wait_until_sync(lambda: served_prior(client) > 0, what="arms learn from now on")
    late = client.choose("waits", key="k0", k=1)
    wait_until_sync(
        lambda: any(row.rewards for row in rows_of(client, late.decision)), what="the default counts"
    )
    client.reward(late.decision, 0.75)
    client.delete_learner("keys", "k1")
    written = teach(client, "keys", rng, "after", keys=2)
    state = next(each for each in client.learners("more", include="state") if each.key == "k0").state
    client.put_learner("more", "given", state=str(state))
    client.observe("more", [{"id": "more", "arm": "a3", "value": 2.0, "key": "given"}])
    wait_until_sync(lambda: rests(client), what="all is learned")
    wait_until_sync(
        lambda: written <= {row.decision for row in client.log("keys")}, what="the last rows are written"
    )


def teach(
    client: Client, name: str, rng: random.Random, run_id: str, *, keys: int = 6, dim: int = DIM
) -> set[str]:
    """The decisions that were made."""
    settings, count = BANDITS[name], 30
    names = list(settings.get("signals", ()))

    def who(i: int) -> dict[str, Any]:
        key = {"key": f"k{i % keys}"} if settings.get("scope") == "per_key" else {}
        return key | ({"context": [0.5, float(i % 3)]} if "context" in settings else {})

    def candidates() -> dict[str, Any]:
        if "match" not in settings:
            return {}
        own = {"id": "mine", "features": [rng.random() for _ in range(dim)], "match": {"km": rng.random()}}
        return {"candidates": ["a1", {"id": "a2", "match": {"km": rng.random()}}, own]}

    asked = [{"k": 2, **who(i), **(candidates() if i % 2 else {})} for i in range(count)]
    choices = client.choose_batch(name, asked).results
    rewards = [
        {
            "decision": each.decision,
            "arm": each.arms[i % 2].id,
            "value": rng.random() - 0.3,
            "reward_id": f"r{j}",
            "at": 10 - j if i % 3 else j,
            **({"signal": names[(i + j) % len(names)]} if names else {}),
        }
        for i, each in enumerate(choices)
        for j in range(1 + i % 4)
        if i % 5
    ]
    client.reward_batch(rewards)
    seen = [{"id": f"{run_id}-{i}", "arm": f"a{i % 12}", **told(names, rng), **who(i)} for i in range(count)]
    client.observe(name, seen)
    return {each.decision for each in choices}


def told(names: Sequence[str], rng: random.Random) -> dict[str, Any]:
    """What an observation says: of some signals, where there are some."""
    if not names:
        return {"value": rng.random()}
    return {"values": {name: rng.random() for name in rng.sample(names, 2)}}


def rows_of(client: Client, decision: str) -> Sequence[Any]:
    return [row for row in client.log("waits") if row.decision == decision]


def served_prior(client: Client) -> int:
    return client.dry_run("effects", key="k0").prior_version or 0


def rests(client: Client) -> bool:
    return client.ready().backlog == 0


def learners(client: Client, name: str) -> dict[str, LearnerState]:
    found = client.learners(name, include="state")
    return {each.key: bytes_to_state(base64.b64decode(each.state or "")) for each in found}


def assert_equal(found: dict[str, LearnerState], expected: dict[str, LearnerState]) -> None:
    assert found.keys() == expected.keys()
    for key, state in expected.items():
        own = found[key]
        assert (own.version, own.time_ms, own.half_life_s) == (
            state.version,
            state.time_ms,
            state.half_life_s,
        )
        assert own.sums.observations == state.sums.observations
        values, true = own.sums.total - own.sums.error, state.sums.total - state.sums.error
        np.testing.assert_allclose(values, true, rtol=1e-9, atol=1e-9 * np.abs(true).max())
        assert own.sums.squares == pytest.approx(state.sums.squares, rel=1e-9, abs=1e-9)
        assert own.sums.weight == pytest.approx(state.sums.weight, rel=1e-9)
        np.testing.assert_allclose(own.sums.moments, state.sums.moments, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(own.sums.products, state.sums.products, rtol=1e-9, atol=1e-9)


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    return [row for name in lake.files(table) for row in lake.read(name).to_pylist()]


def assert_each_once(lake: Lake, client: Client, name: str) -> None:
    """All that the service has is in the lake, and once; and the manifest counts it."""
    decisions = rows(lake, "decisions")
    assert Counter(row["decision"] for row in decisions) == Counter(row.decision for row in client.log(name))
    rewards = rows(lake, "rewards")
    assert {(row["partition"], row["number"]) for row in rewards} == learned(client, name)
    revisions = Counter(row["revision"] for row in rows(lake, "arms"))
    assert set(revisions.values()) == {1}
    shown = {arm["revision"] for row in decisions for arm in row["arms"]}
    named = {row["revision"] for row in rewards if row["revision"]}  # 0: the request brought it
    listed = {arm.revision for arm in client.list_revisions(name, limit=1_000).items}
    assert named | listed <= set(revisions) <= named | listed | shown
    versions = Counter(row["version"] for row in rows(lake, "priors"))
    assert set(versions.values()) <= {1}
    assert {each.version for each in client.list_priors(name).items} >= set(versions)
    assert {row["prior_version"] for row in decisions} - {None, 0} <= set(versions)
    counts = {
        "decisions": len(decisions),
        "rewards": len(rewards),
        "arms": len(revisions),
        "priors": len(versions),
    }
    assert lake.manifest["rows"] == counts
    assert len(rewards) == len(learned(client, name))


def learned(client: Client, name: str) -> set[tuple[int, int]]:
    result, partitions = set(), client.get_terms(name).partitions
    for partition in range(partitions):
        cursor, more = None, True
        while more:
            page = client.list_learned(name, partition=partition, cursor=cursor, limit=1_000)
            result |= {(partition, item.number) for item in page.items}
            cursor, more = page.position, page.next is not None
    return result


@pytest.mark.parametrize("name", BANDITS)
def test_what_is_made_anew_is_what_the_service_learned(client: Client, tmp_path: Path, name: str):
    export_lake(client, name, str(tmp_path / "lake"), limits=ALL)
    lake = Lake(str(tmp_path / "lake"))
    assert_each_once(lake, client, name)
    assert_equal(dict(rebuild.rebuilt(lake)), learners(client, name))


def test_arms_of_requests_are_learned_anew_by_what_they_were(client: Client, tmp_path: Path):
    """Some of them under the id of an arm of the catalogue. The decisions say what the candidates were."""
    rng, asked = np.random.default_rng(3), dict[str, list[str]]()
    client.put_bandit("brought", catalogue="c", policy="sub_ts", log={})
    for number in range(12):
        names = ["a4" if number % 3 else f"n{number}", f"m{number}"]
        own: list[Any] = [{"id": name, "features": rng.normal(size=DIM).tolist()} for name in names]
        choice = client.choose("brought", k=3, candidates=["a1", *own])
        asked[choice.decision] = ["a1", *names]
        client.reward_batch(
            [
                {"decision": choice.decision, "arm": arm.id, "value": float(rng.normal())}
                for arm in choice.arms
            ]
        )
    wait_until_sync(lambda: rests(client), what="all is learned")
    wait_until_sync(lambda: all(row.candidates for row in client.log("brought")), what="rows are whole")
    export_lake(client, "brought", str(tmp_path / "lake"), limits=ALL)
    lake = Lake(str(tmp_path / "lake"))
    assert_equal(dict(rebuild.rebuilt(lake)), learners(client, "brought"))
    found = {row["decision"]: row["candidates"] for row in rows(lake, "decisions")}
    assert {decision: [each["id"] for each in of] for decision, of in found.items()} == asked
    assert all([each["features"] is None for each in of] == [True, False, False] for of in found.values())


@pytest.mark.slow
def test_learners_are_rebuilt_across_moves(tmp_path: Path):
    """Rewards of before and late ones, what did not come along, and what came back."""
    rng, arms = random.Random(2), np.random.default_rng(0).normal(size=(12, DIM))
    arms[1:3] = [[turn, 1.0, 2.0] for turn in (1, 2)]  # as ``build`` has them in the end
    turn, more = np.random.default_rng(3).normal(size=(DIM, DIM + 1)), np.random.default_rng(4)
    features = arms @ turn + 0.1 * more.normal(size=(12, DIM + 1))
    with serving(tmp_path / "service") as service, Client(service.url) as client:
        build(client)
        client.put_catalogue("c2", dim=DIM + 1)
        client.upsert_arms("c2", features, ids=[f"a{i}" for i in range(12)])
        client.put_bandit("logged", catalogue="c", policy="sub_ts", scope="per_key", log={})
        for number in range(8):
            client.reward(client.choose("logged", key=f"k{number % 2}").decision, rng.random())
        wait_until_sync(lambda: len([*client.log("logged")]) == 8, what="the rows are written")
        late = client.choose("plain").decision
        for catalogue in ("c2", "c"):
            for name in (*BANDITS, "logged"):
                carry = "none" if name == "plain" else "map"
                answer = client.move_bandit(name, catalogue=catalogue, carry=carry)
                assert answer.carry == carry
                wait_until_sync(lambda name=name: client.get_bandit(name).move is None, what="it is moved")
                if name in BANDITS:
                    teach(client, name, rng, catalogue, dim=DIM + (catalogue == "c2"))
            assert client.reward(late, 0.5).accepted == (catalogue == "c2")
            wait_until_sync(lambda: rests(client), what="all is learned")
            for name in (*BANDITS, "logged"):
                folder = str(tmp_path / f"{name}-{catalogue}")
                export_lake(client, name, folder, limits=ALL)
                found = dict(rebuild.rebuilt(Lake(folder)))
                assert_equal(found, learners(client, name))
                assert {state.space for state in found.values()} == {1 if catalogue == "c2" else 2}


def test_a_lake_from_before_the_first_arm_learns_the_constant_of_the_intercept(
    client: Client, tmp_path: Path
):
    client.put_catalogue("new", dim=2)
    client.put_bandit("new", catalogue="new", policy="sub_ts", log={})
    folder = str(tmp_path / "lake")
    export_lake(client, "new", folder, limits=ALL)
    assert Lake(folder).manifest["terms"]["constant"] is None
    client.upsert_arms("new", [[1.0, 2.0], [0.0, 3.0]], ids=["a", "b"])
    client.reward(client.choose("new").decision, 0.5)
    wait_until_sync(lambda: rests(client), what="it is learned")
    export_lake(client, "new", folder, limits=ALL)
    assert Lake(folder).manifest["terms"]["constant"] == pytest.approx(3.5**0.5)
    assert_equal(dict(rebuild.rebuilt(Lake(folder))), learners(client, "new"))


@pytest.mark.parametrize("name", BANDITS)
@hypothesis.settings(max_examples=6)
@given(data=st.data())
def test_wherever_the_rewards_are_cut_the_learners_are_the_same(lakes: Any, name: str, data: st.DataObject):
    lake, whole = lakes[name]
    plan, rewards = (
        rebuild.plan_of(lake),
        pa.concat_tables([lake.read(each) for each in lake.files("rewards")]),
    )
    parts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rewards), max_size=len(rewards))))
    done = [rebuild.mapped(plan, rewards.filter(pa.array(parts == part))) for part in range(4)]
    order = data.draw(st.permutations(range(4)))
    merged = reduce(rebuild.merged_parts, [done[part] for part in order])
    assert_equal(dict(rebuild.finished(plan, merged)), whole)


@pytest.fixture(scope="module")
def lakes(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lake of each bandit, and its learners as one process makes them."""
    result = {}
    with Client(service.url) as client:
        for name in BANDITS:
            folder = str(tmp_path_factory.mktemp(name) / "lake")
            export_lake(client, name, folder)
            result[name] = Lake(folder), dict(rebuild.rebuilt(Lake(folder)))
    return result


class Killed(BaseException):
    """As good as SIGKILL: nothing catches it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the next writes to files pass, and end the process before or after this one."""
    left = number

    def counted(work: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise Killed
            result = work(*arguments, **options)
            if left == 0 and number % 2:
                raise Killed
            return result

        return step

    monkeypatch.setattr(Storage, "write", counted(Storage.write))
    for name in ("mv", "rm"):
        monkeypatch.setattr(LocalFileSystem, name, counted(getattr(LocalFileSystem, name)))


@pytest.mark.parametrize("step", [1, 2, 6])
def test_killed_wherever_it_is_each_row_is_there_once(client: Client, tmp_path: Path, step: int, monkeypatch):
    limits = ExportLimits(page=20, commit_rows=30, late_ms=-1_000)
    lake, kills, done = str(tmp_path / "lake"), 0, False
    while not done:
        with monkeypatch.context() as patch:
            kill_at(patch, step + kills % 11)
            try:
                export_lake(client, "keys", lake, limits=limits)
                done = True
            except Killed:
                kills += 1
        if (tmp_path / "lake" / MANIFEST).exists():
            seen = Counter((row["partition"], row["number"]) for row in rows(Lake(lake), "rewards"))
            assert set(seen.values()) <= {1}, "also between a kill and the next run"
    assert kills >= 5
    assert_each_once(Lake(lake), client, "keys")
    assert not (tmp_path / "lake" / STAGING).exists()
    assert_equal(dict(rebuild.rebuilt(Lake(lake))), learners(client, "keys"))


def test_late_rewards_are_rows_of_their_own_and_late_decisions_come_once(client: Client, tmp_path: Path):
    client.put_bandit("late", catalogue="c", policy="sub_ts", log={}, reward={"aggregate": "sum"})
    early = client.choose("late")
    client.reward(early.decision, 1.0, reward_id="r0")
    wait_until_sync(lambda: [row for row in client.log("late") if row.rewards], what="it is logged")
    lake = str(tmp_path / "lake")
    # As if the next minutes were read; and then as if nothing since: however long this takes.
    export_lake(client, "late", lake, limits=ExportLimits(late_ms=-300_000))
    before = {path: path.read_bytes() for path in tmp_path.glob("lake/*/day=*/*")}
    client.reward(early.decision, 2.0, reward_id="r1")
    late, never = client.choose("late"), client.choose("late")
    client.reward(late.decision, 4.0)
    wait_until_sync(lambda: len(list(client.log("late"))) == 3, what="all are logged")
    export_lake(client, "late", lake, limits=ExportLimits(late_ms=200_000))
    found = rows(Lake(lake), "rewards")
    assert sorted(row["value"] for row in found) == [1.0, 2.0, 4.0]
    assert Counter(row["decision"] for row in rows(Lake(lake), "decisions")) == {
        early.decision: 1,
        late.decision: 1,
    }
    assert before.items() <= {path: path.read_bytes() for path in tmp_path.glob("lake/*/day=*/*")}.items()
    export_lake(client, "late", lake, limits=ExportLimits(late_ms=-400_000))
    assert Counter(row["decision"] for row in rows(Lake(lake), "decisions")) == Counter(
        [early.decision, late.decision, never.decision]
    )


def test_the_commands_write_a_file_that_can_be_imported(service: Service, client: Client, tmp_path: Path):
    def shortlist(*words: str) -> str:
        done = (
            run(*words, "--url", service.url, cwd=tmp_path)
            if words[0] != "rebuild"
            else run(*words, cwd=tmp_path)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def export(name: str, out: str) -> str:
        return shortlist("export", "log", name, "--out", out, "--partition", "day")

    # Decisions of the last two seconds are left to the next run.
    wait_until_sync(lambda: "90 decisions, 1" in export("more", "lake"), what="all decisions are exported")
    shortlist("rebuild", "--log", "lake", "--out", "learners.ndjson")
    client.put_bandit("again", catalogue="c", policy="sub_ts", scope="per_key")
    shortlist("import", "again", "learners.ndjson", "--learners")
    assert_equal(learners(client, "again"), learners(client, "more"))
    export("effects", "arms")
    told = shortlist("rebuild", "--log", "arms", "--out", "keys.ndjson", "--arms", "arms.parquet")
    sums, table = rebuilt_arms(Lake(str(tmp_path / "arms"))), pq.read_table(tmp_path / "arms.parquet")
    assert f"{len(sums)} arms in arms.parquet" in told
    found = {row["arm"]: (row["n"], row["F"], *row["R"], *row["Q"]) for row in table.to_pylist()}
    assert found == {arm: (own.n, own.F, *own.R, *own.Q) for arm, own in sums.items()}
    assert sum(table["decisions"].to_pylist()) > 60


def refused(client: Client, lake: Path, name: str = "plain") -> str:
    """Why the lake is refused; nothing in it changes."""
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    with pytest.raises(ShortlistError) as refusal:
        export_lake(client, name, str(lake))
    after = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    after.pop(lake / LOCK, None)
    before.pop(lake / LOCK, None)
    assert after == before
    return refusal.value.detail


def test_a_folder_that_is_not_ours_is_left_alone(client: Client, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty, and no lake" in refused(client, tmp_path)
    with pytest.raises(ShortlistError, match="is no lake of this service"):
        Lake(str(tmp_path))
    lake = tmp_path / "lake"
    export_lake(client, "plain", str(lake))
    assert "is the lake of the bandit plain, not of keys" in refused(client, lake, "keys")
    foreign = lake / "rewards/day=2020-01-01/part-0.parquet"
    foreign.parent.mkdir()
    foreign.write_bytes(b"PAR1")
    assert "part-0.parquet is not of this lake" in refused(client, lake)
    foreign.unlink()
    other = LakeWriter.open(str(lake), "plain", Lake(str(lake)).manifest["terms"])
    assert "another export writes to it" in refused(client, lake)
    other.close()


def test_a_lake_without_its_arms_is_refused(client: Client, tmp_path: Path):
    lake = tmp_path / "lake"
    export_lake(client, "plain", str(lake))
    client.observe("plain", [{"id": "one-more", "arm": "a1", "value": 1}])
    export_lake(client, "plain", str(lake))
    for path in lake.glob("arms/*/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), path)
    with pytest.raises(ShortlistError, match="lacks the arms of"):
        rebuild.rebuilt(Lake(str(lake)))
