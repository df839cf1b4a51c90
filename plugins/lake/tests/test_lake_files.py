"""A lake knows its files: what is gone or cut short is named, rows that their owner deletes are not."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.platform.errors import ShortlistError
from lake_rows import ARM, TERMS, row
from shortlist_lake import tables
from shortlist_lake.files import MANIFEST, TABLES, Lake
from shortlist_lake.rebuild import rebuilt
from shortlist_lake.writing import LakeWriter

DAY_MS = tables.DAY_MS


def opened(folder: Path) -> LakeWriter:
    lake = LakeWriter.open(str(folder), "b", TERMS)
    lake.close()
    return lake


def lake_of_days(folder: Path, days: int = 4) -> None:
    """A lake of a commit each day."""
    lake = LakeWriter.open(str(folder), "b", TERMS)
    for day in range(days):
        rewards = tables.rewards([row(2 * day, time=day * DAY_MS), row(2 * day + 1, time=day * DAY_MS)])
        parts = {("rewards", name): table for name, table in rewards.items()}
        parts |= {("arms", name): table for name, table in tables.arms([ARM], day * DAY_MS).items()}
        lake.commit(parts, {"day": day})
    lake.close()


def counts(folder: Path) -> int:
    lake = Lake(str(folder))
    return sum(lake.read(name, ["time"]).num_rows for name in lake.files("rewards"))


@pytest.mark.parametrize("place", range(8))
def test_every_file_that_is_gone_or_cut_short_is_named(tmp_path: Path, place: int):
    lake_of_days(tmp_path)
    path = sorted(tmp_path.glob("*/day=*/*.parquet"))[place]
    whole, name = path.read_bytes(), str(path.relative_to(tmp_path))
    for size in (0, 3, 8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ShortlistError, match=f"{name} is damaged, or half written"):
            opened(tmp_path)
        with pytest.raises(ShortlistError, match=f"{name} is damaged, or half written"):
            [
                list(Lake(str(tmp_path)).batches(each, 10))
                for table in TABLES
                for each in Lake(str(tmp_path)).files(table)
            ]
    path.unlink()
    with pytest.raises(ShortlistError, match=f"{name} is missing"):
        opened(tmp_path)
    path.write_bytes(whole)
    assert counts(tmp_path) == 8
    opened(tmp_path)


@pytest.mark.rest
@pytest.mark.parametrize("place", range(8))
def test_every_file_of_zeros_is_named(tmp_path: Path, place: int):
    """As long as it was written, as after a crash of the machine: its length says nothing."""
    lake_of_days(tmp_path)
    path = sorted(tmp_path.glob("*/day=*/*.parquet"))[place]
    whole, name = path.read_bytes(), str(path.relative_to(tmp_path))
    half = len(whole) // 2
    for damaged in (bytes(len(whole)), whole[:half] + bytes(len(whole) - half), bytes(half) + whole[half:]):
        path.write_bytes(damaged)
        with pytest.raises(ShortlistError, match=f"{name} is damaged, or half written"):
            opened(tmp_path)
    # Both ends are right, and what is between them is not: whoever reads it says so.
    path.write_bytes(whole[:4] + bytes(half - 4) + whole[half:])
    opened(tmp_path)
    with pytest.raises(ShortlistError, match=f"{name} is damaged, or half written"):
        rebuilt(Lake(str(tmp_path)))


def test_columns_of_another_type_are_read_as_their_own_or_named(tmp_path: Path):
    lake_of_days(tmp_path)
    path = min(tmp_path.glob("rewards/day=*/*.parquet"))
    table, expected = pq.read_table(path, partitioning=None), rebuilt(Lake(str(tmp_path)))
    number = table.schema.get_field_index("number")
    for kind in (pa.int32(), pa.float64(), pa.string()):
        pq.write_table(table.set_column(number, "number", table["number"].cast(kind)), path)
        assert rebuilt(Lake(str(tmp_path))).keys() == expected.keys()
    pq.write_table(table.set_column(number, "number", pa.array(["x"] * len(table))), path)
    with pytest.raises(ShortlistError, match=f"the column number of {path.relative_to(tmp_path)} is string"):
        rebuilt(Lake(str(tmp_path)))
    pq.write_table(table.drop_columns(["time"]), path)
    with pytest.raises(ShortlistError, match=f"{path.name} has no column time"):
        opened(tmp_path)


@pytest.mark.rest
@pytest.mark.parametrize("table", ["rewards", "arms"])
def test_a_rebuild_names_a_file_of_the_last_commit_that_is_gone(tmp_path: Path, table: str):
    lake_of_days(tmp_path, days=1)
    path = next((tmp_path / table).rglob("*.parquet"))
    path.unlink()
    with pytest.raises(ShortlistError, match=f"{path.name} is missing"):
        list(rebuilt(Lake(str(tmp_path))))


def test_rows_that_their_owner_deletes_are_no_damage(tmp_path: Path):
    lake_of_days(tmp_path)
    for path in sorted(tmp_path.glob("rewards/day=*/*.parquet")):
        pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    assert counts(tmp_path) == 4
    lake = LakeWriter.open(str(tmp_path), "b", TERMS)
    lake.commit({}, {"day": 5})
    lake.close()
    sizes = {name: (tmp_path / name).stat().st_size for name in lake.manifest["files"]}
    assert lake.manifest["files"] == sizes


@pytest.mark.rest
def test_a_file_whose_line_is_deleted_from_the_manifest_is_not_missed(tmp_path: Path):
    lake_of_days(tmp_path)
    (path,) = tmp_path.glob("rewards/day=1970-01-01/*")
    path.unlink()
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    del manifest["files"][str(path.relative_to(tmp_path))]
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    opened(tmp_path)
    assert counts(tmp_path) == 6


@pytest.mark.rest
def test_a_file_without_a_column_or_with_text_that_is_not_utf_8_is_named(tmp_path: Path):
    lake_of_days(tmp_path)
    path = min(tmp_path.glob("rewards/day=*/*.parquet"))
    table, whole = pq.read_table(path, partitioning=None), path.read_bytes()
    raw = pa.array([b"\xff"] * len(table), pa.binary())
    keys = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    broken = table.set_column(table.schema.get_field_index("key"), "key", keys)
    for wrong, words in ((broken, "is damaged"), (table.drop_columns(["key"]), "has no column key")):
        pq.write_table(wrong, path)
        with pytest.raises(ShortlistError, match=f"{path.name} {words}"):
            rebuilt(Lake(str(tmp_path)))
    path.write_bytes(whole)
    assert rebuilt(Lake(str(tmp_path)))


WRONG: dict[str, Any] = {
    "files": [], "commit": "1", "pending": [], "rows": 3, "at": None, "terms": [], "bandit": 1, "writer": {},
}  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "\x00", "", "null", "{}", '{"format": 1}', "[]" * 2]
)
def test_a_manifest_that_is_none_is_one_line(tmp_path: Path, text: str):
    lake_of_days(tmp_path)
    (tmp_path / MANIFEST).write_text(text)
    for attempt in (lambda: Lake(str(tmp_path)), lambda: opened(tmp_path)):
        with pytest.raises(ShortlistError, match=r"manifest\.json is damaged"):
            attempt()


@pytest.mark.rest
@pytest.mark.parametrize("field", WRONG)
def test_a_manifest_with_a_field_of_another_kind_is_one_line(tmp_path: Path, field: str):
    lake_of_days(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, field: WRONG[field]}))
    with pytest.raises(ShortlistError, match=r"manifest\.json is damaged"):
        opened(tmp_path)
