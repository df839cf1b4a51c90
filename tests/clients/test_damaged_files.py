"""Files that are damaged, or hold numbers that only Python reads: one line says what is wrong with each."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shortlist_evaluation.log_files import COLUMNS, rows_of
from shortlist_files.arm_rows import FileError
from shortlist_files.learner_files import learners_of
from shortlist_files.table_arms import arms_of

pytestmark = pytest.mark.rest

TWO = [[1.0, 2.0], [3.0, 4.0]]


def refused(path: Path) -> list[str]:
    """Read a file as arms, as learners and as a log, whatever it is; nothing comes of it, or an error."""
    found = []
    for read in (lambda: arms_of(path), learners_of(path), lambda: rows_of(path, "reading")):
        try:
            assert list(read()) == []
        except FileError as error:
            found.append(str(error))
    return found


def npy(path: Path, shape: object, descr: str = "'<f8'") -> Path:
    """A matrix whose head says this of it, over 64 bytes of numbers."""
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(64))
    path.with_suffix(".ids").write_text("a\nb\n")
    return path


SHAPES = [
    "(-1, 2)", "(-2, -2)", "(2, -2)", "(True, 2)", "(2.0, 2)", "'ab'", "(99999999999999999999, 2)",
    "(4611686018427387904, 4)", "(2305843009213693953, 2)", "(2, 2", "(" * 90, "(2, 2)\0", "None",
    "(2, 2)[0]",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_matrix_whose_head_is_damaged(tmp_path: Path, shape: str):
    with pytest.raises(FileError, match=r"is not an \.npy file of numbers"):
        list(arms_of(npy(tmp_path / "a.npy", shape)))


def test_every_matrix_that_ends_too_early(tmp_path: Path):
    whole = npy(tmp_path / "whole.npy", "(2, 2)").read_bytes()
    for size in range(len(whole) - 64 + 31):
        path = tmp_path / "a.npy"
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match=r"a\.npy: is not an \.npy file of numbers"):
            list(arms_of(path))


def texts(*values: bytes) -> pa.Array:
    """A column of texts with bytes as they are: Arrow does not look at them."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def parquet(path: Path, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


BAD = b"\xffc4nary"


@pytest.mark.parametrize("name", ["id", "metadata"])
def test_text_of_arms_that_is_not_utf_8_is_an_error(tmp_path: Path, name: str):
    columns = {
        "id": texts(b"a", BAD if name == "id" else b"b"),
        "features": pa.array(TWO),
        "metadata": texts(b"{}", BAD if name == "metadata" else b"{}"),
    }
    with pytest.raises(FileError, match=r"a\.parquet: has text that is not UTF-8"):
        list(arms_of(parquet(tmp_path / "a.parquet", **columns)))


def test_text_of_learners_and_logs_that_is_not_utf_8(tmp_path: Path):
    learners = parquet(tmp_path / "l.parquet", key=texts(b"a", BAD), state=pa.array([b"x", b"x"]))
    with pytest.raises(FileError, match="has text that is not UTF-8"):
        list(learners_of(learners)())
    log = parquet(tmp_path / "log.parquet", **dict.fromkeys(COLUMNS, texts(BAD)))
    with pytest.raises(FileError, match="has text that is not UTF-8"):
        list(rows_of(log, "reading"))


def test_a_parquet_file_that_is_damaged_anywhere_is_an_error_or_still_what_it_was(tmp_path: Path):
    """Eight bytes are replaced at 40 places: no place ends in a traceback."""
    rng = np.random.default_rng(7)
    whole = parquet(
        tmp_path / "whole.parquet",
        id=pa.array([f"a{number}" for number in range(300)]),
        features=pa.array(rng.normal(size=(300, 2)).tolist()),
        tags=pa.array([["x", f"y{number}"] for number in range(300)]),
    ).read_bytes()
    errors = 0
    for start in np.linspace(0, len(whole) - 8, 40).astype(int):
        path = tmp_path / "a.parquet"
        path.write_bytes(whole[:start] + rng.bytes(8) + whole[start + 8 :])
        try:
            list(arms_of(path))
        except FileError:
            errors += 1
    assert errors >= 20
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        assert len(refused(path)) == 3


NUMBERS = {
    "1": 1.0, "-1.5": -1.5, "+2": 2.0, ".5": 0.5, "1.": 1.0, "1e5": 1e5, "1E-2": 0.01, " 1 ": 1.0, "-0": 0.0,
    "1_0": None, "1e1_0": None, "0x10": None, "": None, "nan": None, "inf": None, "-Infinity": None,
    "1e400": None,
}  # fmt: skip


@pytest.mark.parametrize("spelling", NUMBERS)
def test_how_a_number_may_be_spelled_in_csv(tmp_path: Path, spelling: str):
    path = tmp_path / "a.csv"
    path.write_text(f'id,x0,x1\na,7,"{spelling}"\n', encoding="utf-8")
    if NUMBERS[spelling] is None:
        with pytest.raises(FileError, match=r"row 1: x1: (must be a number|must be finite|is missing)"):
            list(arms_of(path))
    else:
        (rows,) = arms_of(path)
        assert rows.features is not None
        assert rows.features.tolist() == [[7.0, NUMBERS[spelling]]]


NOT_JSON = [
    ("a.ndjson", '{"id": "a", "features": [1, NaN]}\n', "row 1: is not a JSON object: NaN must be null"),
    (
        "a.csv",
        'id,x0,x1,metadata\na,1,2,"{""c4nary"": NaN}"\n',
        "row 1: metadata: must be the text of a JSON object",
    ),
]


@pytest.mark.parametrize(("name", "text", "words"), NOT_JSON)
def test_what_only_python_reads_as_json_is_no_json(tmp_path: Path, name: str, text: str, words: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=re.escape(words)) as refused:
        list(arms_of(tmp_path / name))
    assert "c4nary" not in str(refused.value)


BOM = b"\xef\xbb\xbf"
STATE = base64.b64encode(b"x").decode()


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("a.csv", "id,x0,x1\na,1,2\n", lambda path: [name for rows in arms_of(path) for name in rows.ids]),
        (
            "a.ndjson",
            '{"id": "a", "features": [1, 2]}\n',
            lambda path: [n for r in arms_of(path) for n in r.ids],
        ),
        ("l.csv", f"key,state\na,{STATE}\n", lambda path: [row.key for row in learners_of(path)()]),
        (
            "l.ndjson",
            f'{{"key": "a", "state": "{STATE}"}}\n',
            lambda path: [row.key for row in learners_of(path)()],
        ),
    ],
)
def test_a_mark_of_byte_order_is_no_part_of_the_first_name(
    tmp_path: Path, name: str, text: str, read: Callable[[Path], list[str]]
):
    for content in (text.encode(), BOM + text.encode()):
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name) == ["a"]


def test_ids_and_a_matrix_from_a_spreadsheet(tmp_path: Path):
    np.save(tmp_path / "a.npy", TWO)
    (tmp_path / "a.ids").write_bytes(BOM + b"a\r\nb\r\n")
    (rows,) = arms_of(tmp_path / "a.npy")
    assert list(rows.ids) == ["a", "b"]


@pytest.mark.parametrize("ending", [".ndjson", ".csv", ".parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"\0", BOM, b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"\0" * 5000]
)
def test_what_is_no_file_of_any_kind(tmp_path: Path, ending: str, content: bytes):
    path = tmp_path / f"a{ending}"
    path.write_bytes(content)
    assert all("\n" not in each for each in refused(path))
