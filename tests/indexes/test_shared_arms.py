"""Several indexes that share their arms: each has what it should, whoever makes publications and dies."""

from __future__ import annotations

import errno
import shutil
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.indexes import arm_file
from app.indexes.arm_ids import ArmIds, MappedIds
from app.indexes.live import IndexOptions, IndexWork, LiveIndex
from app.indexes.publishing import Adoption, Publishing
from app.indexes.shared_arms import SharedArms
from app.indexes.table import ArmTable

DIM = 3
OPTIONS = IndexOptions(kind="hnsw", m=4, ef_construction=20)
INDEXES = 3
IDS = st.lists(st.integers(0, 30).map("é{}".format), min_size=1, max_size=8, unique=True)
WHICH = st.integers(0, INDEXES - 1)


class Store:
    """What all indexes are to have, and the ids of all changes in their order."""

    def __init__(self) -> None:
        self.arms: dict[str, tuple[np.ndarray, int]] = {}
        self.log: list[str] = []
        self.revision = 0

    def put(self, ids: list[str], rng: np.random.Generator) -> None:
        for arm_id in ids:
            self.revision += 1
            self.arms[arm_id] = rng.standard_normal(DIM), self.revision
        self.log += ids

    def delete(self, ids: list[str]) -> None:
        for arm_id in ids:
            self.arms.pop(arm_id, None)
        self.log += ids


class Process:
    """An index, and what it should have by what it was told."""

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.store = group, group.store
        self.index = LiveIndex(
            DIM,
            OPTIONS,
            cache=group.folder / "c.index",
            shared=SharedArms(group.folder / "shared", lambda: group.maker == number),
        )
        self.expected: dict[str, int] = {}
        self.job: IndexWork | None = None

    def start(self) -> None:
        """As a service does that starts: from a publication if there is one."""
        job = self.index.begin_adoption()
        if job is not None:
            job.run()
            self.index.finish_maintenance(job)
        self.expected = self.held()
        self.sync()

    def apply(self, ids: list[str]) -> None:
        there = [arm_id for arm_id in ids if arm_id in self.store.arms]
        self.index.remove([arm_id for arm_id in ids if arm_id not in self.store.arms])
        if there:
            features, revisions = zip(*(self.store.arms[arm_id] for arm_id in there), strict=True)
            self.index.upsert(there, np.array(features), revisions)
        for arm_id in ids:
            self.expected.pop(arm_id, None)
            if arm_id in self.store.arms:
                self.expected[arm_id] = self.store.arms[arm_id][1]

    def sync(self) -> None:
        self.apply(sorted(set(self.store.log[self.index.version :])))
        self.index.version = len(self.store.log)

    def begin(self) -> None:
        if self.job is None:
            self.index._rest_until = 0.0
            self.job = self.index.begin_maintenance()
            if self.job is not None:
                self.job.run()

    def finish(self) -> None:
        if self.job is not None:
            self.index.finish_maintenance(self.job)
            self.job = None

    def held(self) -> dict[str, int]:
        table = self.index.snapshot().table
        return {table.ids[row]: table.revisions.item(row) for row in table.live_rows.tolist()}

    def check(self) -> None:
        assert self.held() == self.expected
        snapshot = self.index.snapshot()
        table = snapshot.table
        for row in table.live_rows.tolist():
            features, revision = self.store.arms.get(table.ids[row], (None, -1))
            if revision == table.revisions[row]:
                assert np.array_equal(table.features[row], features)
                assert np.allclose(table.working[row], features, rtol=1e-6)
        if table.live:
            query = np.ones(DIM)
            found = snapshot.search(query, 1)
            assert table.is_alive(found.rows).all()
            assert found.scores[0] <= snapshot.search_exact(query, 1).scores[0]


class Group(RuleBasedStateMachine):
    """Processes that write, read what others wrote, share, end and start, in any order."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shortlist-"))
        self.rng = np.random.default_rng(seed)
        self.store, self.maker = Store(), 0
        self.processes = [Process(self, number) for number in range(INDEXES)]

    def teardown(self) -> None:
        for _ in range(3):  # the maker makes the last publication, the others adopt it
            for process in self.processes:
                process.finish()
                process.sync()
                process.begin()
                process.finish()
        for process in self.processes:
            process.check()
            assert process.held() == {arm_id: of[1] for arm_id, of in self.store.arms.items()}
        shutil.rmtree(self.folder)

    @rule(which=WHICH, ids=IDS)
    def write(self, which: int, ids: list[str]) -> None:
        """Read at once by who wrote it, whatever it has not read of others."""
        process = self.processes[which]
        is_next = process.index.version == len(self.store.log)
        self.store.put(ids, self.rng)
        process.apply(ids)
        if is_next:
            process.index.version = len(self.store.log)

    @rule(which=WHICH, ids=IDS)
    def delete(self, which: int, ids: list[str]) -> None:
        self.store.delete(ids)
        self.processes[which].apply(ids)

    @rule(which=WHICH)
    def sync(self, which: int) -> None:
        self.processes[which].sync()

    @rule(which=WHICH)
    def begin_work(self, which: int) -> None:
        self.processes[which].begin()

    @rule(which=WHICH)
    def finish_work(self, which: int) -> None:
        self.processes[which].finish()

    @rule(which=WHICH)
    def another_makes(self, which: int) -> None:
        self.maker = which

    @rule(which=WHICH)
    def restart(self, which: int) -> None:
        self.processes[which] = Process(self, which)
        self.processes[which].start()

    @rule(place=st.floats(0, 1, exclude_max=True), data=st.data())
    def damage(self, place: float, data: st.DataObject) -> None:
        """In a copy: who has mapped the file itself reads on."""
        shared = SharedArms(self.folder / "shared", lambda: False)
        if shared.current is None:
            return
        files = sorted(shared.folder_of(shared.current).iterdir())
        self.damage_file(data.draw(st.sampled_from(files)), place)

    def damage_file(self, file: Path, place: float) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[int(place * len(data))] ^= 1
            file.unlink()
            file.write_bytes(data)

    @rule()
    def leave_a_publication_half_made(self) -> None:
        made = self.folder / "shared" / "1000"
        made.mkdir(parents=True, exist_ok=True)
        (made / "features").write_bytes(b"half")

    @invariant()
    def all_have_what_they_should(self) -> None:
        for process in getattr(self, "processes", []):
            process.check()


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.fixture
def table() -> ArmTable:
    rng, made = np.random.default_rng(3), ArmTable(DIM)
    made.append([f"a{row}" for row in range(200)], rng.standard_normal((200, DIM)), np.arange(200))
    made.tombstone(np.array([3, 150]))
    return made


def written(folder: Path, table: ArmTable) -> Path:
    folder.mkdir()
    arm_file.write(folder, table.snapshot(), check=lambda: None)
    return folder


@pytest.mark.parametrize("dim", [1, 3, 64, 65])
def test_what_was_written_is_read(tmp_path: Path, dim: int) -> None:
    rng, table = np.random.default_rng(dim), ArmTable(dim)
    table.append([f"a{row}" for row in range(500)], rng.standard_normal((500, dim)), rng.permutation(500))
    table.tombstone(np.array([7]))
    view = arm_file.read(written(tmp_path / "1", table)).snapshot()
    kept, revisions = table.snapshot().by_revision
    assert np.array_equal(view.revisions, revisions)
    assert np.array_equal(view.features, table.snapshot().features[kept])
    assert np.array_equal(view.working, table.snapshot().working[kept])
    assert view.working.flags.f_contiguous == table.snapshot().working.flags.f_contiguous or dim == 1
    assert list(view.ids) == [table.snapshot().ids[row] for row in kept.tolist()]
    assert view.rows_of([f"a{row}" for row in range(501)]).size == 499


def test_only_the_owner_can_read_the_files(tmp_path: Path, table: ArmTable) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in written(tmp_path / "1", table).iterdir()}
    assert modes == {0o600}


def test_changes_of_one_process_are_not_in_the_files(tmp_path: Path, table: ArmTable) -> None:
    folder = written(tmp_path / "1", table)
    one, other = arm_file.read(folder), arm_file.read(folder)
    one.tombstone(np.array([0]))
    one.append(["new"], np.ones((1, DIM)), np.array([1_000]))
    assert (one.row_of("new"), other.row_of("new")) == (198, None)
    assert other.snapshot().live == 198
    assert arm_file.read(folder).snapshot().live == 198


def test_a_file_that_was_changed_anywhere_is_refused(tmp_path: Path, table: ArmTable) -> None:
    """But for the room for more arms at the end, where nothing is read."""
    folder, rng = written(tmp_path / "1", table), np.random.default_rng(5)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        used = {"features": 8 * DIM * 198, "norms": 8 * 198, "revisions": 8 * 198, "working": 4 * 198}
        for place in rng.integers(0, used.get(path.name, len(whole)), 20).tolist():
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ValueError, match="1"):
                arm_file.read(folder)
        for shorter in (whole[:-1], whole[: len(whole) // 2], b""):
            path.write_bytes(shorter)
            with pytest.raises(ValueError, match="1"):
                arm_file.read(folder)
        path.write_bytes(whole)
    assert arm_file.read(folder).snapshot().live == 198


def test_ids_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.indexes.arm_ids._hash", len)
    names = [f"{row:03}" for row in range(50)] + ["longer"]
    ids = ArmIds(MappedIds.of(iter(names), len(names)))
    assert [ids.last_row(name) for name in names] == list(range(51))
    assert ids.last_row("050") is None
    assert list(ids) == names


def group(folder: Path) -> tuple[LiveIndex, LiveIndex]:
    """A maker and another, which have the same arms."""
    rng = np.random.default_rng(8)
    features = rng.standard_normal((300, DIM))
    made = []
    for is_maker in (True, False):
        shared = SharedArms(folder / "shared", lambda is_maker=is_maker: is_maker)
        index = LiveIndex(DIM, OPTIONS, cache=folder / "c.index", shared=shared)
        index.upsert([str(row) for row in range(300)], features, list(range(1, 301)))
        made.append(index)
    return made[0], made[1]


def work(index: LiveIndex) -> IndexWork | None:
    index._rest_until = 0.0
    job = index.begin_maintenance()
    if job is not None:
        try:
            job.run()
        finally:
            index.finish_maintenance(job)
    return job


def test_one_builds_and_the_other_serves_the_same_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    maker, other = group(tmp_path)
    assert work(other) is None, "nothing is there yet"
    assert isinstance(work(maker), Publishing)
    assert maker.snapshot().structure is None, "the first is of the arms alone"
    assert isinstance(work(maker), Publishing)
    monkeypatch.setattr("app.indexes.hnsw.HnswGraph.build", lambda *a, **k: pytest.fail("built again"))
    other.remove(["5"])
    assert type(work(other)) is Adoption
    assert work(other) is None
    assert work(maker) is None
    one, two = maker.snapshot(), other.snapshot()
    assert (one.kind, two.kind) == ("hnsw", "hnsw")
    assert one.structure.tuning == two.structure.tuning
    assert other.status().recall_at_1 == maker.status().recall_at_1
    for query in np.random.default_rng(1).standard_normal((30, DIM)):
        found = [[view.id_of(int(row)) for row in view.search(query, 5).rows] for view in (one, two)]
        assert [arm_id for arm_id in found[0] if arm_id != "5"] == found[1][: len(set(found[0]) - {"5"})]


def test_a_full_disk_leaves_what_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker, other = group(tmp_path)
    for _ in range(2):
        work(maker)
    work(other)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    maker.remove([str(row) for row in range(100)])
    before = maker.snapshot()
    monkeypatch.setattr(arm_file, "_write_all", full)
    with pytest.raises(OSError, match="No space left"):
        work(maker)
    assert maker.snapshot().kind == "hnsw"
    assert (
        maker.snapshot().search(np.ones(DIM), 3).rows.tolist() == before.search(np.ones(DIM), 3).rows.tolist()
    )
    assert work(other) is None
    names = {path.name for path in (tmp_path / "shared").iterdir()}
    assert names == {"2", "current"}, "nothing half made is left"


def test_a_graph_that_was_damaged_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    maker, other = group(tmp_path)
    for _ in range(2):
        work(maker)
    graph = tmp_path / "shared" / "2" / "graph"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    assert type(work(other)) is Adoption
    assert other.snapshot().structure is None
    assert "damaged" in caplog.text
    assert isinstance(work(maker), Publishing)
    work(other)
    assert other.snapshot().kind == "hnsw"
