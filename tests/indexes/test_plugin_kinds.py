"""Kinds of index from outside: a file of each, and what to install where one cannot be built."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from api_client import Api, running
from app.indexes import index_kinds
from shortlist.index.index import Build, Index
from shortlist.index.planner import Candidate, IndexOptions, Plan, Task, plan
from tests.indexes.brute_force import filled

pytestmark = pytest.mark.rest


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        yield api


def test_each_structure_that_is_tried_has_a_file_of_its_own(tmp_path: Path) -> None:
    files = dict[str, Path | None]()

    def candidate(kind: str) -> Candidate:
        def attempt(task: Task) -> tuple[Plan, Index | None]:
            assert task.build.load_from == task.build.save_to
            files[kind] = task.build.save_to
            return task.exact.plan, None

        return Candidate(kind, attempt)

    rng, path = np.random.default_rng(0), tmp_path / "0a1b.index"
    table = filled(rng.normal(size=(5_000, 64))).snapshot().table
    build = Build(seed=0, threads=1, check=lambda: None, load_from=path, save_to=path)
    tried = [candidate(kind) for kind in ("hnsw", "flat8", "ivf_pq")]
    plan(table, IndexOptions(), build, recent=(), rng=rng, candidates=tried, small_numbers=1)
    assert files == {
        "hnsw": path, "flat8": tmp_path / "0a1b.flat8.index", "ivf_pq": tmp_path / "0a1b.ivf_pq.index"
    }  # fmt: skip


@pytest.mark.anyio
async def test_files_go_with_their_catalogue(api: Api, tmp_path: Path) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    await api.ok("PUT", "/v1/catalogues/d", {"dim": 2}, 201)
    catalogues = api.app.service.catalogues
    # private: of the files of a catalogue nobody is told
    files = [catalogues._kinds.index_file((await catalogues.get(name)).uid) for name in ("c", "d")]
    ours = [file for path in files for file in (path, path.with_name(f"{path.stem}.flat8.index"))]
    gone = files[0].with_name("0000.flat8.index")
    for file in (*ours, gone):
        file.touch()
    await catalogues.load()
    assert [file.exists() for file in (*ours, gone)] == [True] * 4 + [False]
    await api.ok("DELETE", "/v1/catalogues/c", status=204)
    assert [file.exists() for file in ours] == [False, False, True, True]


@pytest.mark.anyio
async def test_a_kind_whose_package_is_absent_is_refused_with_what_to_install(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(index_kinds.MISSING, "ivf_pq", "faiss-cpu")
    body = {"dim": 2, "index": {"kind": "ivf_pq"}}
    told = await api.refused("PUT", "/v1/catalogues/c", body, loc=["body", "index", "kind"])
    assert "the index ivf_pq needs the package faiss-cpu, which is not installed here" in str(told)
