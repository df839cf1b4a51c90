"""Contract of a store: a catalogue against a model, a Python dictionary."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_arms import KEEP_MS, arms_of, vector

from app.storage.store import Store
from app.storage.types import ArmWrite

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


class Model:
    """What a catalogue is: a dictionary of arms, a version, and features by revision."""

    def __init__(self):
        self.arms, self.documents, self.retired = {}, {}, {}
        self.version = self.revision = 0

    def upsert(self, arms):
        before = (dict(self.arms), dict(self.documents))
        added, revisions = 0, []
        for id_, features, document in arms:
            added += id_ not in self.arms
            standing = self.arms.get(id_)
            if standing is None or standing[1] != features:
                self.revision += 1
                if standing:
                    self.retired[standing[0]] = standing[1]
                self.arms[id_] = (self.revision, features)
            self.documents[id_] = document
            revisions.append(self.arms[id_][0])
        self.version += (self.arms, self.documents) != before
        return self.version, added, len(arms) - added, revisions

    def delete(self, ids):
        deleted, missing = [], []
        for id_ in ids:
            if id_ in self.arms:
                revision, features = self.arms.pop(id_)
                self.documents.pop(id_)
                self.retired[revision] = features
                deleted.append(id_)
            else:
                missing.append(id_)
        self.version += bool(deleted)
        return self.version, deleted, missing


RUNS = itertools.count()
IDS = st.sampled_from(["a", "b", "c", "d", "a:b", "z_9"])
FEATURES = st.sampled_from([vector(1), vector(2), vector(0, -0.0), b""])
DOCUMENTS = st.sampled_from([b"", b"{}", b"\xff\x00"])
UPSERT = st.tuples(
    st.just("upsert"), st.lists(st.tuples(IDS, FEATURES, DOCUMENTS), max_size=6, unique_by=lambda a: a[0])
)
DELETE = st.tuples(st.just("delete"), st.lists(IDS, max_size=4))


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(UPSERT | DELETE, st.booleans()), max_size=25))
async def test_a_catalogue_is_a_dictionary(store: Store, steps):
    """Against a model; a step may be made twice, as after a lost reply, and the second changes nothing."""
    uid, model = f"{next(RUNS):016x}", Model()  # examples share the store
    for (step, words), twice in steps:
        for again in range(1 + twice):
            before = model.version
            if step == "upsert":
                done = await store.arms.upsert(uid, [ArmWrite(*arm) for arm in words], keep_ms=KEEP_MS)
                assert (done.version, done.added, done.updated, list(done.revisions)) == model.upsert(words)
            else:
                gone = await store.arms.delete(uid, words, keep_ms=KEEP_MS)
                assert (gone.version, list(gone.deleted), list(gone.missing)) == model.delete(words)
            assert not again or model.version == before
        arms = await arms_of(store, uid)
        assert {i: (a.revision, a.features) for i, a in arms.items()} == model.arms
        assert await store.arms.version(uid) == model.version
        ids = ["a", "b", "c", "d", "a:b", "z_9"]
        assert await store.arms.documents(uid, ids) == [model.documents.get(i, b"") for i in ids]
        for revision in range(1, model.revision + 1):
            assert await store.arms.retired_features(uid, revision) == model.retired.get(revision)
