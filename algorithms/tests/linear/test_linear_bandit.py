"""`LinearBandit`: the algorithms of the folder in one object."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from shortlist.errors import InvalidArgument, InvalidShape
from shortlist.index import arm_index
from shortlist.linear import linear_ts, ridge_sums
from shortlist.linear.bandit import LinearBandit
from shortlist.linear.exploration import exploration_at, exploration_by_evidence
from shortlist.mips.adaptive import Scan

POLICIES = ["sub_ts", "linear_ts", "linucb", "softmax"]
ARMS = np.random.default_rng(5).standard_normal((40, 4))
TRUTH = np.array([1.0, -0.5, 0.25, 2.0])


def drawing() -> np.random.Generator:
    return np.random.default_rng(3)


def played(bandit: LinearBandit, rounds: int) -> list[int]:
    noise = np.random.default_rng(bandit.observations)
    shown = []
    for _ in range(rounds):
        (arm,) = bandit.choose()
        bandit.partial_fit(arm, 3.0 + ARMS[arm] @ TRUTH + 0.1 * noise.standard_normal())
        shown.append(int(arm))
    return shown


@pytest.mark.parametrize("policy", POLICIES)
def test_it_finds_the_best_arm_and_what_arms_earn(policy: str):
    bandit = LinearBandit(ARMS, policy=policy, rng=drawing())
    shown = played(bandit, 150)
    best = int((ARMS @ TRUTH).argmax())
    assert bandit.expected().argmax() == best
    assert shown[-20:].count(best) >= 10  # seeded; random arms: 1 of 40
    assert bandit.expected([best])[0] == pytest.approx(3.0 + ARMS[best] @ TRUTH, abs=0.2)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_saved_bandit_goes_on_with_what_it_had_learned(policy: str, tmp_path: Path):
    rng = drawing()
    bandit = LinearBandit(ARMS, policy=policy, exploration=0.4, intercept=False, rng=rng)
    played(bandit, 20)
    bandit.save(str(tmp_path / "bandit.npz"))
    other = LinearBandit.load(str(tmp_path / "bandit.npz"), ARMS, rng=deepcopy(rng))
    assert played(other, 20) == played(bandit, 20)
    assert np.array_equal(other.posterior.root, bandit.posterior.root)
    assert (other.policy, other.exploration, other.ridge, other.intercept) == (policy, 0.4, None, False)


def test_it_asks_the_index_for_the_drawn_arms_and_leaves_the_intercept_out():
    class Recording(Scan):
        def search(self, query, k, exclude=()):
            asked.append((query, k, list(exclude)))
            return super().search(query, k, exclude)

    asked: list[tuple[np.ndarray, int, list[int]]] = []
    with_index = LinearBandit(ARMS, index=Recording(ARMS), rng=drawing()).partial_fit([1, 2], [0.5, 1.0])
    alone = LinearBandit(ARMS, rng=drawing()).partial_fit([1, 2], [0.5, 1.0])
    assert np.array_equal(with_index.choose(5, exclude=[7, 3, 7]), alone.choose(5, exclude=[3, 7]))
    ((query, k, excluded),) = asked
    assert (query.shape, k, excluded) == ((4,), 5, [3, 7])


INDEXES = ["exact", "auto", "hnsw", "inverted_file"]
MANY = np.random.default_rng(6).standard_normal((3_000, 8))


def taught(index: str | None, rng: np.random.Generator | None = None) -> LinearBandit:
    shown = np.arange(200)
    rewards = MANY[shown] @ np.arange(8.0) + np.random.default_rng(0).standard_normal(200)
    return LinearBandit(MANY, index=index, rng=rng or drawing()).partial_fit(shown, rewards)


def drawn_rewards(bandit: LinearBandit, rng: np.random.Generator) -> np.ndarray:
    """What arms earn by the parameter that the bandit is about to draw, without the intercept."""
    multiple = exploration_at(exploration_by_evidence(9), bandit.posterior.ratio)
    return MANY @ linear_ts.draw(bandit.posterior, exploration=multiple, rng=rng)[:8]


@pytest.mark.parametrize("index", [None, *INDEXES])
def test_an_index_finds_the_arms_that_a_comparison_of_all_finds(index: str | None):
    rng, again = np.random.default_rng(9), np.random.default_rng(9)
    bandit, kept = taught(index, rng), []
    for k in [1, 5, 10] * 40:
        exclude = [0, 17]
        scores = drawn_rewards(bandit, again)
        scores[exclude] = -np.inf
        best, rows = np.argsort(-scores)[:k], bandit.choose(k, exclude=exclude)
        assert len({*rows.tolist()} - {*exclude}) == k
        assert np.array_equal(rows, rows[np.argsort(-scores[rows])])  # the best first
        kept.append(np.isin(best, rows).mean())
        if index in {None, "exact", "auto"}:  # so few arms are scanned
            assert np.array_equal(rows, best)
    assert np.mean(kept) >= 0.9  # of a graph and of lists that were tuned to .95


@pytest.mark.parametrize("index", INDEXES)
def test_a_saved_bandit_finds_by_its_index_what_it_found(index: str, tmp_path: Path, monkeypatch):
    rng, path = np.random.default_rng(9), str(tmp_path / "bandit.npz")
    bandit = taught(index, rng)
    bandit.save(path)
    bandit.save(path)  # in the place of the first
    with monkeypatch.context() as patch:
        patch.setattr(arm_index, "build", lambda *_: pytest.fail("it was built again"))
        other = LinearBandit.load(path, MANY.tolist(), rng=deepcopy(rng))
    assert [other.choose(3).tolist() for _ in range(30)] == [bandit.choose(3).tolist() for _ in range(30)]
    other.save(str(tmp_path / "other.npz"))
    assert {file.suffix for file in tmp_path.iterdir()} == {".npz", *([] if index == "exact" else [".index"])}


@pytest.mark.rest
def test_an_index_of_other_arms_or_a_damaged_one_is_built_again(tmp_path: Path):
    rng, path = np.random.default_rng(9), str(tmp_path / "bandit.npz")
    taught("inverted_file").save(path)
    more = np.vstack((MANY, 100.0 * np.arange(8.0)))
    with_more = LinearBandit.load(path, more, rng=rng)
    assert with_more.choose().tolist() == [3_000]
    (tmp_path / "bandit.index" / "index").write_bytes(b"hello")
    assert len(LinearBandit.load(path, MANY, rng=rng).choose(3)) == 3


@pytest.mark.rest
def test_an_index_by_name_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    for name in [name for name in sys.modules if name.startswith("shortlist.index.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("shortlist.index.arm_index", raising=False)
    with pytest.raises(
        InvalidArgument, match=r"needs the package hnswlib: pip install '\./algorithms\[index\]' in a"
    ):
        LinearBandit(ARMS, index="hnsw", rng=drawing())
    assert len(LinearBandit(ARMS, index="exact", rng=drawing()).choose(3)) == 3


def test_several_rewards_at_once_are_as_one_after_the_other():
    together = LinearBandit(ARMS, rng=drawing()).partial_fit([1, 1, 2], [0.5, 1.5, -1.0])
    apart = LinearBandit(ARMS, rng=drawing()).partial_fit(1, 0.5).partial_fit(1, 1.5).partial_fit(2, -1.0)
    assert together.observations == apart.observations == 3
    assert np.array_equal(together.posterior.theta, apart.posterior.theta)


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("arms", lambda: LinearBandit([[1.0], [1.0, 2.0]], rng=drawing())),
        ("arms", lambda: LinearBandit([1.0, 2.0], rng=drawing())),
        ("arms", lambda: LinearBandit([[np.nan]], rng=drawing())),
        ("policy", lambda: LinearBandit(ARMS, policy="best", rng=drawing())),
        ("index", lambda: LinearBandit(ARMS, index="faiss", rng=drawing())),
        ("index", lambda: LinearBandit(ARMS, policy="linear_ts", index="hnsw", rng=drawing())),
        ("index", lambda: LinearBandit(ARMS, policy="softmax", index=Scan(ARMS), rng=drawing())),
        ("exploration", lambda: LinearBandit(ARMS, exploration=-1.0, rng=drawing())),
        ("exploration", lambda: LinearBandit(ARMS, policy="softmax", exploration=0.0, rng=drawing())),
        ("ridge", lambda: LinearBandit(ARMS, ridge=0.0, rng=drawing())),
        ("k", lambda: LinearBandit(ARMS, rng=drawing()).choose(0)),
        ("k", lambda: LinearBandit(ARMS, rng=drawing()).choose(1.5)),
        ("exclude", lambda: LinearBandit(ARMS, rng=drawing()).choose(exclude=[40])),
        ("arm", lambda: LinearBandit(ARMS, rng=drawing()).partial_fit("kettle", 1.0)),
        ("arm", lambda: LinearBandit(ARMS, rng=drawing()).partial_fit(-1, 1.0)),
        ("reward", lambda: LinearBandit(ARMS, rng=drawing()).partial_fit(1, "good")),
        ("reward", lambda: LinearBandit(ARMS, rng=drawing()).partial_fit([1, 2], 1.0)),
        ("reward", lambda: LinearBandit(ARMS, rng=drawing()).partial_fit(1, np.inf)),
    ],
)
def test_a_wrong_argument_is_named(argument: str, make):
    with pytest.raises(InvalidArgument) as refused:
        make()
    assert refused.value.argument == argument


def test_nothing_is_learned_where_a_reward_is_refused():
    bandit = LinearBandit(ARMS, rng=drawing())
    with pytest.raises(InvalidArgument):
        bandit.partial_fit([1, 2], [1.0, np.nan])
    assert bandit.observations == 0
    assert not bandit.posterior.theta.any()


def test_a_file_of_something_else_and_arms_of_another_dimension_are_refused(tmp_path: Path):
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "sums.npz", total=ridge_sums.empty(3).total)
    np.save(tmp_path / "array.npy", np.ones(3))
    for name in ("text", "sums.npz", "array.npy"):
        with pytest.raises(InvalidArgument, match=r"LinearBandit\.save wrote") as refused:
            LinearBandit.load(str(tmp_path / name), ARMS, rng=drawing())
        assert refused.value.argument == "path"
    LinearBandit(ARMS, rng=drawing()).save(str(tmp_path / "bandit.npz"))
    with pytest.raises(InvalidShape, match="arms must have 4 features"):
        LinearBandit.load(str(tmp_path / "bandit.npz"), ARMS[:, :3], rng=drawing())
    with pytest.raises(FileNotFoundError):
        LinearBandit.load(str(tmp_path / "none.npz"), ARMS, rng=drawing())


def test_no_reward_of_several_threads_is_lost():
    bandit = LinearBandit(ARMS, rng=drawing())

    def play(seed: int) -> None:
        arms = np.random.default_rng(seed).integers(len(ARMS), size=100)
        for arm in arms:
            bandit.partial_fit(arm, ARMS[arm] @ TRUTH)
            assert len(bandit.choose()) == 1

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(play, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert bandit.observations == 800
    assert np.allclose(bandit.expected(), ARMS @ TRUTH, atol=0.1)  # of all of them, not of a few


def test_a_file_that_is_cut_is_named_and_one_that_is_not_written_whole_stays(tmp_path: Path, monkeypatch):
    path, bandit = tmp_path / "bandit.npz", LinearBandit(ARMS, rng=drawing()).partial_fit(1, 0.5)
    bandit.save(path)
    whole = path.read_bytes()

    def cut(file, **arrays) -> None:
        file.write(whole[:1_000])
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", cut)
        with pytest.raises(OSError, match="no space"):
            bandit.save(path)
    assert path.read_bytes() == whole
    for length in range(0, len(whole), 100):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidArgument, match=r"LinearBandit\.save wrote"):
            LinearBandit.load(path, ARMS, rng=drawing())


def test_a_bandit_that_version_2_0_saved_has_the_constant_1(tmp_path: Path):
    bandit = LinearBandit(ARMS, rng=drawing())
    bandit._constant = 1.0  # private: as it was then
    bandit.partial_fit([1, 2], [0.5, 1.0]).save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        np.savez(tmp_path / "old.npz", **{name: file[name] for name in file.files if name != "constant"})
    old = LinearBandit.load(tmp_path / "old.npz", ARMS, rng=drawing())
    assert np.array_equal(old.expected(), bandit.expected())
