"""Indexes share their arms, in any order of writes, work, damage and starts: against a store."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex, Maintenance
from app.indexes.publishing import Adoption
from app.indexes.shared_arms import SharedArms

pytestmark = pytest.mark.rest

DIM = 3
OPTIONS = IndexOptions(kind="hnsw", m=4, ef_construction=20)
INDEXES = 3
IDS = st.lists(st.integers(0, 30).map("é{}".format), min_size=1, max_size=8, unique=True)
WHICH = st.integers(0, INDEXES - 1)
KINDS = st.sampled_from(["sharing", "maintenance", "measurement"])


DOCUMENTS = st.one_of(
    st.just(((), {})),
    st.integers(0, 5).map(lambda number: ([f"t{number}"], {"n": number, "s": f"word {number}"})),
)


class Store:
    """What all indexes are to have, and the ids of all changes in their order."""

    def __init__(self) -> None:
        self.arms: dict[str, tuple[np.ndarray, int]] = {}
        self.documents: dict[str, tuple] = {}
        self.log: list[str] = []
        self.revision = 0

    def put(self, ids: list[str], document: tuple, rng: np.random.Generator) -> None:
        for arm_id in ids:
            self.revision += 1
            self.arms[arm_id] = rng.standard_normal(DIM), self.revision
            self.documents[arm_id] = document
        self.log += ids

    def describe(self, ids: list[str], document: tuple) -> None:
        """The features stay, and so does the revision."""
        for arm_id in ids:
            self.documents[arm_id] = document
        self.log += ids

    def delete(self, ids: list[str]) -> None:
        for arm_id in ids:
            self.arms.pop(arm_id, None)
        self.log += ids


SMALL = IndexLimits(least_dead=4, described_rows=16)  # so that they compact, and fold what they note


class Process:
    """An index, and what it should have by what it was told: of each arm the revision and the document.

    A publication may bring documents that the process was not told of, and no others: ``documents`` are those
    that it may have, the oldest first.
    """

    def __init__(self, group: Group, number: int) -> None:
        self.group, self.store = group, group.store
        self.index = LiveIndex(
            DIM,
            OPTIONS,
            cache=group.folder / "c.index",
            shared=SharedArms(group.folder / "shared", lambda: group.maker == number),
            limits=SMALL,
        )
        self.expected: dict[str, int] = {}
        self.told: dict[str, tuple] = {}
        self.jobs: dict[str, Maintenance | Adoption | None] = {}

    def start(self) -> None:
        """As a service does that starts: from a publication if there is one."""
        self.begin("sharing")
        self.finish("sharing")
        if not len(self.index):
            self.apply([*self.store.arms])
            self.index.version = len(self.store.log)
        self.expected = self.held()
        self.sync()

    def apply(self, ids: list[str]) -> None:
        there = [arm_id for arm_id in ids if arm_id in self.store.arms]
        self.index.remove([arm_id for arm_id in ids if arm_id not in self.store.arms])
        if there:
            features, revisions = zip(*(self.store.arms[arm_id] for arm_id in there), strict=True)
            self.index.upsert(there, np.array(features), revisions)
            self.index.describe(there, [self.store.documents[arm_id] for arm_id in there])
        for arm_id in ids:
            self.expected.pop(arm_id, None)
            if arm_id in self.store.arms:
                self.expected[arm_id] = self.store.arms[arm_id][1]
                self.told[arm_id] = self.store.documents[arm_id]

    def sync(self) -> None:
        self.apply(sorted(set(self.store.log[self.index.version :])))
        self.index.version = len(self.store.log)

    def begin(self, kind: str) -> None:
        if self.jobs.get(kind) is None:
            self.index.rest_until = self.index.sharing.rest_until = 0.0
            job = self.jobs[kind] = getattr(self.index, f"begin_{kind}")()
            if job is not None:
                job.run()

    def finish(self, kind: str) -> None:
        job = self.jobs.pop(kind, None)
        if job is None:
            return
        # private: an adoption replaces all arms only then
        is_start = kind == "sharing" and job.from_start and self.index._is_untouched
        self.index.finish(job)
        if is_start and len(self.index):
            self.expected = self.held()

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
        self.check_documents()
        if table.live:
            query = np.ones(DIM)
            found = snapshot.search(query, 1)
            assert table.is_alive(found.rows).all()
            assert found.scores[0] <= snapshot.search_exact(query, 1).scores[0]

    def check_documents(self) -> None:
        """Of an arm that nobody has changed since the process was told: exactly what it was told.

        Where the log has gone on, another document may have come with a publication.
        """
        snapshot = self.index.snapshot()
        later = set(self.store.log[self.index.version :])
        for number in range(6):
            arm_filter = parse({"tags": f"t{number}", "n": number, "s": f"word {number}"})
            rows = eligible_rows(arm_filter, snapshot.table, snapshot.attributes).rows
            found = {snapshot.id_of(row) for row in rows.tolist()} - later
            wanted = {
                arm_id
                for arm_id in self.expected
                if arm_id in self.store.documents and f"t{number}" in self.store.documents[arm_id][0]
            }
            assert found == wanted - later

    def settle(self) -> None:
        for kind in ("sharing", "maintenance"):
            self.finish(kind)
        self.sync()
        for kind in ("sharing", "maintenance"):
            self.begin(kind)
            self.finish(kind)


class Group(RuleBasedStateMachine):
    """Processes that write, read what others wrote, share, end and start, in any order."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shortlist-"))
        self.rng = np.random.default_rng(seed)
        self.store, self.maker = Store(), 0
        self.processes = [Process(self, number) for number in range(INDEXES)]

    def teardown(self) -> None:
        for _ in range(4):  # the maker plans, makes the last publication, the others adopt it
            for process in self.processes:
                process.settle()
        for process in self.processes:
            process.check()
            assert process.held() == {arm_id: of[1] for arm_id, of in self.store.arms.items()}
            table = process.index.snapshot().table
            assert not table.live or table.ids.mapped, "all have the arms in common"
        shutil.rmtree(self.folder)

    @rule(which=WHICH, ids=IDS, document=DOCUMENTS)
    def write(self, which: int, ids: list[str], document: tuple) -> None:
        """Read at once by who wrote it, whatever it has not read of others."""
        process = self.processes[which]
        is_next = process.index.version == len(self.store.log)
        self.store.put(ids, document, self.rng)
        process.apply(ids)
        if is_next:
            process.index.version = len(self.store.log)

    @rule(which=WHICH, ids=IDS, document=DOCUMENTS)
    def describe(self, which: int, ids: list[str], document: tuple) -> None:
        process = self.processes[which]
        there = [arm_id for arm_id in ids if arm_id in self.store.arms]
        is_next = process.index.version == len(self.store.log)
        self.store.describe(there, document)
        process.apply(there)
        if is_next:
            process.index.version = len(self.store.log)

    @rule(which=WHICH, ids=IDS)
    def delete(self, which: int, ids: list[str]) -> None:
        self.store.delete(ids)
        self.processes[which].apply(ids)

    @rule(which=WHICH, count=st.integers(1, 8))
    def delete_the_longest(self, which: int, count: int) -> None:
        lengths = {arm_id: -float(np.linalg.norm(of[0])) for arm_id, of in self.store.arms.items()}
        self.delete(which, sorted(lengths, key=lambda arm_id: lengths[arm_id])[:count])

    @rule(which=WHICH)
    def sync(self, which: int) -> None:
        self.processes[which].sync()

    @rule(which=WHICH, kind=KINDS)
    def begin_work(self, which: int, kind: str) -> None:
        self.processes[which].begin(kind)

    @rule(which=WHICH, kind=KINDS)
    def finish_work(self, which: int, kind: str) -> None:
        self.processes[which].finish(kind)

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
TestGroup.settings = settings(max_examples=10, stateful_step_count=25)


@pytest.mark.slow
class TestGroupForLong(Group.TestCase):
    settings = settings(max_examples=200, stateful_step_count=40)
