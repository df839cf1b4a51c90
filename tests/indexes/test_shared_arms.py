"""Several indexes that share their arms: each has what it should, whoever makes publications and dies."""

from __future__ import annotations

import errno
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from app.filters.filter import parse
from app.indexes import shared_files
from app.indexes.eligible_rows import eligible_rows
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex, Maintenance
from app.indexes.publishing import Adoption, Publishing
from app.indexes.shared_arms import SharedArms
from shortlist.index import shared_format
from shortlist.index.arm_ids import ArmIds
from shortlist.index.arrays import MappedStrings
from shortlist.index.table import ArmTable

DIM = 3
OPTIONS = IndexOptions(kind="hnsw", m=4, ef_construction=20)


@pytest.fixture
def table() -> ArmTable:
    rng, made = np.random.default_rng(3), ArmTable(DIM)
    made.append([f"a{row}" for row in range(200)], rng.standard_normal((200, DIM)), np.arange(200))
    made.tombstone(np.array([3, 150]))
    return made


def written(folder: Path, table: ArmTable) -> Path:
    folder.mkdir()
    shared_files.write_arms(folder, table.snapshot(), check=lambda: None)
    return folder


@pytest.mark.parametrize("dim", [1, 3, 64, 65])
def test_what_was_written_is_read(tmp_path: Path, dim: int) -> None:
    rng, table = np.random.default_rng(dim), ArmTable(dim)
    table.append([f"a{row}" for row in range(500)], rng.standard_normal((500, dim)), rng.permutation(500))
    table.tombstone(np.array([7]))
    view = shared_files.read_arms(written(tmp_path / "1", table)).snapshot()
    kept = table.snapshot().live_rows
    assert np.array_equal(view.revisions, table.snapshot().revisions[kept])
    assert np.array_equal(view.features, table.snapshot().features[kept])
    assert np.array_equal(view.working, table.snapshot().working[kept])
    assert view.working.flags.f_contiguous == table.snapshot().working.flags.f_contiguous or dim == 1
    assert list(view.ids) == [table.snapshot().ids[row] for row in kept.tolist()]
    assert view.rows_of([f"a{row}" for row in range(501)]).size == 499


def test_only_the_owner_can_read_the_files(tmp_path: Path, table: ArmTable) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in written(tmp_path / "1", table).iterdir()}
    assert modes == {0o600}


@pytest.mark.rest
def test_changes_of_one_process_are_not_in_the_files(tmp_path: Path, table: ArmTable) -> None:
    folder = written(tmp_path / "1", table)
    one, other = shared_files.read_arms(folder), shared_files.read_arms(folder)
    one.tombstone(np.array([0]))
    one.append(["new"], np.ones((1, DIM)), np.array([1_000]))
    assert (one.row_of("new"), other.row_of("new")) == (198, None)
    assert other.snapshot().live == 198
    assert shared_files.read_arms(folder).snapshot().live == 198


@pytest.mark.rest
def test_a_file_that_was_changed_anywhere_is_refused(tmp_path: Path, table: ArmTable) -> None:
    """But for the room for more arms at the end, where nothing is read."""
    folder, rng = written(tmp_path / "1", table), np.random.default_rng(5)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        used = dict.fromkeys(("norms", "revisions", "came"), 8 * 198)
        used |= {"features": 8 * DIM * 198, "working": 4 * 198}
        for place in rng.integers(0, used.get(path.name, len(whole)), 20).tolist():
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ValueError, match="1"):
                shared_files.read_arms(folder)
        for shorter in (whole[:-1], whole[: len(whole) // 2], b""):
            path.write_bytes(shorter)
            with pytest.raises(ValueError, match="1"):
                shared_files.read_arms(folder)
        path.write_bytes(whole)
    assert shared_files.read_arms(folder).snapshot().live == 198


@pytest.mark.rest
def test_ids_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shortlist.index.arrays._hash", len)
    names = [f"{row:03}" for row in range(50)] + ["longer"]
    ids = ArmIds(MappedStrings.of(iter(names), len(names)))
    assert [ids.last_row(name) for name in names] == list(range(51))
    assert ids.last_row("050") is None
    assert list(ids) == names


def group(folder: Path, limits: IndexLimits = IndexLimits()) -> tuple[LiveIndex, LiveIndex]:
    """A maker and another, which have the same arms and documents."""
    rng = np.random.default_rng(8)
    features = rng.standard_normal((300, DIM))
    made = []
    for is_maker in (True, False):
        shared = SharedArms(folder / "shared", lambda is_maker=is_maker: is_maker)
        index = LiveIndex(DIM, OPTIONS, cache=folder / "c.index", shared=shared, limits=limits)
        ids = [str(row) for row in range(300)]
        index.upsert(ids, features, list(range(1, 301)))
        index.describe(
            ids, [(["even"], {"big": 2**60 + row}) if row % 2 == 0 else ((), {}) for row in range(300)]
        )
        index.version = 1
        made.append(index)
    return made[0], made[1]


def done(index: LiveIndex, kind: str) -> Maintenance | Adoption | None:
    index.rest_until = index.sharing.rest_until = 0.0
    job = getattr(index, f"begin_{kind}")()
    if job is not None:
        try:
            job.run()
        finally:
            index.finish(job)
    return job


def share(index: LiveIndex) -> Adoption | None:
    return done(index, "sharing")


def built(index: LiveIndex) -> None:
    """Plan, and share that."""
    assert done(index, "maintenance") is not None
    assert isinstance(share(index), Publishing)


def let_in(index: LiveIndex, **condition: object) -> set[str]:
    view = index.snapshot()
    rows = eligible_rows(parse(condition), view.table, view.attributes).rows
    return {view.id_of(row) for row in rows.tolist()}


@pytest.mark.rest
def test_one_builds_and_the_other_serves_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    maker, other = group(tmp_path)
    assert share(other) is None, "nothing is there yet"
    assert done(other, "maintenance") is None, "it is for the maker to build"
    assert isinstance(share(maker), Publishing)
    assert type(share(other)) is Adoption
    assert maker.snapshot().structure is None, "the first is of the arms alone"
    built(maker)
    monkeypatch.setattr("shortlist.index.hnsw.HnswGraph.build", lambda *a, **k: pytest.fail("built again"))
    other.remove(["5"])
    assert type(share(other)) is Adoption
    assert share(other) is None
    assert share(maker) is None
    one, two = maker.snapshot(), other.snapshot()
    assert (one.kind, two.kind) == ("hnsw", "hnsw")
    assert one.structure.tuning == two.structure.tuning
    assert other.status().recall_at_1 == maker.status().recall_at_1
    for query in np.random.default_rng(1).standard_normal((30, DIM)):
        found = [[view.id_of(int(row)) for row in view.search(query, 5).rows] for view in (one, two)]
        assert [arm_id for arm_id in found[0] if arm_id != "5"] == found[1][: len(set(found[0]) - {"5"})]


@pytest.mark.rest
def test_who_adopts_a_graph_knows_what_its_recall_was_measured_on(tmp_path: Path) -> None:
    """So it does not tell of arms that died what was true before."""
    maker, other = group(tmp_path)
    built(maker)
    share(other)
    assert other.status().recall_at_1 == maker.status().recall_at_1 > 0.9
    view = maker.snapshot()
    longest = np.argsort(-view.table.norms)[:9]
    for index in (maker, other):
        index.remove([view.id_of(int(row)) for row in longest])
        index.snapshot()
    lost = [index.content.structure.degradation.lost for index in (maker, other)]
    assert lost[0] == lost[1] > 0.1
    assert other.status().recall_at_1 == maker.status().recall_at_1


@pytest.mark.rest
def test_a_graph_serves_on_when_it_is_shared_again_with_deaths(tmp_path: Path) -> None:
    """The arms that are shared have other numbers then, and the graph has labels that are gone."""
    maker, other = group(tmp_path)
    built(maker)
    share(other)
    gone = [str(row) for row in range(0, 40, 2)]
    for index in (maker, other):
        index.remove(gone)
        index.upsert([f"n{row}" for row in range(150)], np.ones((150, DIM)) * 0.01, list(range(400, 550)))
        index.version = 2
    assert isinstance(share(maker), Publishing)
    share(other)
    one, two = maker.snapshot(), other.snapshot()
    assert two.kind == "hnsw"
    assert two.structure.degradation.dead == one.structure.degradation.dead > 0
    assert two.structure.degradation.load == pytest.approx(one.structure.degradation.load)
    for query in np.random.default_rng(1).standard_normal((50, DIM)):
        assert one.id_of(one.search(query, 1).rows[0]) == two.id_of(two.search(query, 1).rows[0])


@pytest.mark.rest
def test_a_graph_that_was_added_to_is_shared_when_much_came(tmp_path: Path) -> None:
    """It is in no file of its own, and some of its arms are dead."""
    maker, other = group(tmp_path, IndexLimits(newer_share=0.0))
    built(maker)
    share(other)
    features = np.random.default_rng(2).standard_normal((150, DIM)) * 0.9
    shortest = [str(row) for row in maker.snapshot().structure.rows[-1:]]
    for first, last in ((0, 40), (40, 150)):
        ids = [f"n{row}" for row in range(first, last)]
        for index in (maker, other):
            index.upsert(ids, features[first:last], list(range(400 + first, 400 + last)))
            index.remove(shortest)
            index.version += 1
        assert done(maker, "maintenance").growing is not None
        assert (share(maker) is not None) == (last == 150), "not for a few"
    assert type(share(other)) is Adoption
    one, two = maker.snapshot(), other.snapshot()
    assert one.structure.is_interim
    assert one.structure.tuning == two.structure.tuning
    assert two.structure.degradation.dead == one.structure.degradation.dead > 0
    for query in np.random.default_rng(1).standard_normal((50, DIM)):
        assert one.id_of(one.search(query, 1).rows[0]) == two.id_of(two.search(query, 1).rows[0])


@pytest.mark.rest
def test_columns_are_shared_and_changes_stay_with_who_made_them(tmp_path: Path) -> None:
    maker, other = group(tmp_path)
    share(maker)
    other.describe(["1"], [(["even"], {})])
    share(other)
    evens = {str(row) for row in range(0, 300, 2)}
    assert let_in(maker, tags="even") == evens
    assert let_in(other, tags="even") == evens | {"1"}, "what the maker does not know yet"
    assert let_in(other, big=2**60 + 4) == {"4"}
    assert let_in(other, big={"$gt": 2**60 + 296}) == {"298"}
    taken = other.content.attributes.memory_bytes
    blocks = other.snapshot().attributes.blocks
    assert blocks[0].columns[next(iter(blocks[0].columns))].codes.base is not None
    assert taken > 0
    other.describe(["0"], [((), {})])
    assert let_in(other, tags="even") == (evens | {"1"}) - {"0"}


@pytest.mark.rest
def test_a_maker_that_is_far_behind_spoils_nothing_of_who_is_ahead(tmp_path: Path) -> None:
    maker, other = group(tmp_path)
    built(maker)
    share(other)
    other.upsert([f"n{row}" for row in range(500)], np.ones((500, DIM)), [*range(400, 900)])
    maker.remove(["0"])
    maker.written_at = -1e9
    maker.upsert([f"m{row}" for row in range(20)], np.ones((20, DIM)), [*range(900, 920)])
    maker.written_at = -1e9
    assert isinstance(share(maker), Publishing)
    before = other.snapshot()
    assert type(share(other)) is Adoption
    assert share(other) is None, "it is not looked at again"
    assert (other.snapshot().kind, other.snapshot().table.number) == ("hnsw", before.table.number)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["features", "columns", "search", "write the number"])
def test_a_full_disk_leaves_what_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    maker, other = group(tmp_path)
    built(maker)
    share(other)

    def full(file: object, array: np.ndarray) -> None:
        name = Path(file.name).name
        if name == kind or (kind == "write the number" and name == "next"):
            raise OSError(errno.ENOSPC, "No space left on device")
        written_all(file, array)

    for index in (maker, other):
        index.remove([str(row) for row in range(100)])
        index.upsert([f"n{row}" for row in range(300)], np.ones((300, DIM)), list(range(400, 700)))
    written_all, before = shared_format.write_all, maker.snapshot()
    monkeypatch.setattr(shared_format, "write_all", full)
    monkeypatch.setattr(shared_files, "write_all", full)
    with pytest.raises(OSError, match="No space left"):
        share(maker)
    assert maker.snapshot().kind == "hnsw"
    assert (
        maker.snapshot().search(np.ones(DIM), 3).rows.tolist() == before.search(np.ones(DIM), 3).rows.tolist()
    )
    assert share(other) is None
    names = {path.name for path in (tmp_path / "shared").iterdir()} - {"next"}
    assert names == {"1", "current", "failure"}, "nothing half made is left"
    monkeypatch.undo()
    assert isinstance(share(maker), Publishing), "it is made as soon as there is room"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, "changed") for name in ("graph", "columns", "columns.header", "search", "search.header")),
        *((name, "changed") for name in ("arms", "arms.header")),
        ("graph", "cut"),
        ("columns", "removed"),
        ("arms.header", "removed"),
    ],
)
def test_a_file_that_was_damaged_is_never_served_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    maker, other = group(tmp_path)
    built(maker)
    file = tmp_path / "shared" / "1" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if damage != "removed":
        file.write_bytes(data if damage == "changed" else data[: len(data) // 2])
    assert type(share(other)) is Adoption
    assert other.snapshot().structure is None
    assert "damaged" in caplog.text
    assert isinstance(share(maker), Publishing)
    share(other)
    assert other.snapshot().kind == "hnsw"
    assert let_in(other, tags="even") == {str(row) for row in range(0, 300, 2)}


class Killed(BaseException):
    """In place of SIGKILL: nothing is cleared."""


@pytest.mark.rest
def test_a_maker_that_is_killed_at_any_step_leaves_what_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time another process takes its part: it adopts the last publication, and makes the next."""
    maker, _ = group(tmp_path)
    built(maker)
    monkeypatch.setattr(shutil, "rmtree", lambda *arguments, **named: None)
    written_all, steps = shared_format.write_all, 0
    for step in range(1_000):
        _, other = group(tmp_path)
        other.sharing.shared.is_maker = lambda: True
        assert type(share(other)) is Adoption
        assert other.snapshot().kind == "hnsw"
        other.upsert(["new"], np.ones((1, DIM)), [1_000 + step])
        other.written_at = -1e9
        left = step

        def write(file: object, array: np.ndarray) -> None:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            written_all(file, array)

        other.upsert([f"n{row}" for row in range(200)], np.ones((200, DIM)), [*range(2_000, 2_200)])
        with monkeypatch.context() as patch:
            patch.setattr(shared_format, "write_all", write)
            patch.setattr(shared_files, "write_all", write)
            try:
                assert isinstance(share(other), Publishing)
                break
            except Killed:
                steps += 1
    assert steps > 20
