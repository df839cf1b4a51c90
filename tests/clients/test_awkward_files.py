"""Tables as people have them: each file comes in right, or one sentence names the row and the field."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from server.cli import main
from service_process import Service, serving
from shortlist_client import Client

Run = Callable[..., tuple[int, str, str]]
Made = tuple[Path, list[str | Path]]
TWO = [[1.0, 2.0], [3.0, 4.0]]
NPY = ["--features", "emb.npy"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("awkward")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, which has an empty catalogue of two numbers."""
    with Client(service.url) as client:
        for catalogue in list(client.catalogues()):
            client.delete_catalogue(catalogue.id)
        client.put_catalogue("c", dim=2, index={"kind": "exact"})
        yield client


@pytest.fixture
def run(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*map(str, arguments), "--url", service.url])
        shown = capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if not line.startswith(("checked: ", "sent: "))]
        return status, shown.out, "\n".join(errors)

    return run


def arms_of(client: Client) -> dict[str, tuple[list[float], list[str], dict[str, Any]]]:
    return {arm.id: (list(arm.features), list(arm.tags), dict(arm.metadata)) for arm in client.arms("c")}


def text(at: Path, content: str | bytes, *flags: str, name: str = "t.csv") -> Made:
    """A table of texts, with embeddings of two numbers beside it: two rows."""
    data = content if isinstance(content, bytes) else content.encode()
    (at / name).write_bytes(data)
    np.save(at / "emb.npy", np.array(TWO))
    return at / name, list(flags or ["--id", "sku", *NPY])


def last_of_ten(at: Path, name: str, good: str, bad: str) -> Made:
    rows = "".join(f"a{n},{good},1,2\n" for n in range(9))
    return text(at, f"sku,{name},e0,e1\n{rows}b,{bad},1,2\n", "--id", "sku", "--features", "e*")


def matrix(at: Path, embeddings: np.ndarray[Any, Any]) -> Made:
    """A table of two ids, and this matrix beside it."""
    made = text(at, "sku\na\nb\n")
    np.save(at / "emb.npy", embeddings)
    return made


def columns(at: Path, *flags: str, **arrays: Any) -> Made:
    """A Parquet file."""
    table = pa.table({"sku": ["a", "b"], "emb": pa.array(TWO)} | arrays)
    pq.write_table(table, at / "t.parquet")
    return at / "t.parquet", list(flags or ["--id", "sku", "--features", "emb"])


def lines(at: Path, *documents: Any, flags: tuple[str, ...] = ("--id", "sku", "--features", "emb")) -> Made:
    rows = [each if isinstance(each, str) else json.dumps(each) for each in documents]
    (at / "t.ndjson").write_text("\n".join(rows) + "\n")
    return at / "t.ndjson", list(flags)


def frame(at: Path, write: Callable[[pd.DataFrame, Path], object], name: str) -> Made:
    """A table as pandas writes it: an index, categories, a missing number and time, a flag."""
    table = pd.DataFrame(
        {
            "sku": [7, 8],
            "brand": pd.Categorical(["Aero", None]),
            "price": [1.5, float("nan")],
            "released": [pd.Timestamp("2024-01-31"), pd.NaT],
            "sale": [True, False],
        }
    )
    write(table, at / name)
    np.save(at / "emb.npy", np.array(TWO))
    return at / name, ["--id", "sku", *NPY]


def both(*metadata: dict[str, Any], tags: tuple[list[str], list[str]] = ([], [])) -> dict[str, Any]:
    """The arms a and b, with the two embeddings."""
    documents = (*metadata, {}, {})
    return {name: (TWO[n], tags[n], documents[n]) for n, name in enumerate("ab")}


OF_PANDAS = {
    "7": (TWO[0], [], {"brand": "Aero", "price": 1.5, "released": "2024-01-31", "sale": True}),
    "8": (TWO[1], [], {"sale": False}),
}
OF_PANDAS_TIMES = OF_PANDAS | {
    "7": (TWO[0], [], {**OF_PANDAS["7"][2], "released": "2024-01-31T00:00:00"})  # type: ignore[dict-item]
}
PRICES = both({"price": 1234.5}, {"price": 7})


def spark(at: Path) -> Made:
    """A folder of parts, with the column brand in the names of folders, and files that are none."""
    for name, brand in (("a", "Aero"), ("b", "__HIVE_DEFAULT_PARTITION__")):
        part = at / "out.parquet" / f"brand={brand}"
        part.mkdir(parents=True)
        row = {"sku": [name], "emb": [TWO["ab".index(name)]], "price": pa.array([Decimal("9.50")])}
        pq.write_table(
            pa.table(row), part / "part-00000.snappy.parquet", use_deprecated_int96_timestamps=True
        )
        (part / ".part-00000.crc").write_bytes(b"crc")
    (at / "out.parquet" / "_SUCCESS").touch()
    return at / "out.parquet", ["--id", "sku", "--features", "emb"]


def float16(rows: list[Any]) -> pa.Array:
    return pa.array(
        [None if row is None else np.array(row, np.float16) for row in rows], pa.list_(pa.float16())
    )


FILES: dict[str, tuple[Callable[[Path], Made], dict[str, Any] | str]] = {
    # Each has the arms that come of it, or what is said of it.
    "semicolons and decimal commas": (lambda at: text(at, "sku;price\na;1.234,50\nb;7,0\n"), PRICES),
    "whole numbers of 18 digits, and articles of 19": (
        lambda at: text(at, f"sku,n,article\na,{10**18 - 1},{10**18}\nb,2,3\n"),
        both({"n": 10**18 - 1, "article": f"{10**18}"}, {"n": 2, "article": "3"}),
    ),
    "a mark of byte order and CRLF": (
        lambda at: text(at, b"\xef\xbb\xbfsku,price\r\na,1234.5\r\nb,7\r\n"),
        PRICES,
    ),
    "UTF-16": (lambda at: text(at, "sku,brand\na,Søren\nb,\n".encode("utf-16")), both({"brand": "Søren"})),
    "an encoding that is named": (
        lambda at: text(
            at, "sku,brand\na,Ж\nb,\n".encode("cp1251"), "--id", "sku", *NPY, "--encoding", "cp1251"
        ),
        both({"brand": "Ж"}),
    ),
    "quotes, with separators and line breaks in them": (
        lambda at: text(at, 'sku,about\n"a","one, ""two""\nthree"\nb,""\n'),
        both({"about": 'one, "two"\nthree'}),
    ),
    "gzip": (lambda at: text(at, gzip.compress(b"sku,price\na,1234.5\nb,7\n"), name="t.csv.gz"), PRICES),
    "more cells than the head, all empty": (lambda at: text(at, "sku,price\na,1234.5,,\nb,7,\n"), PRICES),
    "prices with a currency": (lambda at: text(at, 'sku,price\na,"€ 1,234.50"\nb,€7\n'), PRICES),
    "codes with zeros in front stay texts": (
        lambda at: text(at, "sku,zip\na,00501\nb,10115\n"),
        both({"zip": "00501"}, {"zip": "10115"}),
    ),
    "a column that is said to be of texts": (
        lambda at: text(at, "sku,size\na,38\nb,40\n", "--id", "sku", *NPY, "--text", "size"),
        both({"size": "38"}, {"size": "40"}),
    ),
    "dates of Germany": (
        lambda at: text(at, "sku,on\na,31.01.2024\nb,01.02.2024\n"),
        both({"on": "2024-01-31"}, {"on": "2024-02-01"}),
    ),
    "times with offsets": (
        lambda at: text(at, "sku,on\na,2024-01-31T12:00:00+02:00\nb,2024-01-31T12:00:00Z\n"),
        both({"on": "2024-01-31T10:00:00Z"}, {"on": "2024-01-31T12:00:00Z"}),
    ),
    "booleans as words": (
        lambda at: text(at, "sku,sale\na,yes\nb,No\n"),
        both({"sale": True}, {"sale": False}),
    ),
    "lists as JSON, and as Python prints them": (
        lambda at: text(at, 'sku,of,tags\na,"[""x"", ""y""]","[\'new\']"\nb,[],"[\'new\', \'red\']"\n'),
        both({"of": ["x", "y"]}, {"of": []}, tags=(["new"], ["new", "red"])),
    ),
    "embeddings in a column each, in the order of their numbers": (
        lambda at: text(at, "sku,emb_10,emb_9\na,2,1\nb,4,3\n", "--id", "sku", "--features", "emb_*"),
        both(),
    ),
    "embeddings as numpy prints them": (
        lambda at: text(at, 'sku,emb\na,"[1. 2.]"\nb,"[3.e+00\n 4.]"\n', "--id", "sku", "--features", "emb"),
        both(),
    ),
    "a table of pandas as CSV, with its index": (
        lambda at: frame(at, pd.DataFrame.to_csv, "t.csv"),
        OF_PANDAS,
    ),
    "a table of pandas as Parquet": (
        lambda at: frame(at, pd.DataFrame.to_parquet, "t.parquet"),
        OF_PANDAS_TIMES,
    ),
    "a folder of Spark": (spark, both({"brand": "Aero", "price": 9.5}, {"price": 9.5})),
    "lists of fixed size, and of large ones": (
        lambda at: columns(at, emb=pa.array(TWO, pa.list_(pa.float32(), 2))),
        both(),
    ),
    "decimals, times, structs, maps and bytes": (
        lambda at: columns(
            at,
            price=[Decimal("9.50"), None],
            since=pa.array([datetime(2024, 1, 31, tzinfo=UTC), None], pa.timestamp("ns", tz="Europe/Berlin")),
            on=[date(2024, 1, 31), None],
            of=[{"x": 1.5, "y": None}, None],
            more=pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            text=[b"caf\xc3\xa9", None],
        ),
        both(
            {
                "price": 9.5,
                "since": "2024-01-31T00:00:00Z",
                "on": "2024-01-31",
                "of": {"x": 1.5},
                "more": {"k": 1},
                "text": "café",
            }
        ),
    ),
    "NDJSON with null tags and metadata, and a field in some lines": (
        lambda at: lines(
            at,
            {"sku": "a", "emb": [1, 2], "tags": None, "metadata": None},
            {"sku": "b", "emb": [3, 4], "tags": ["x"], "metadata": {"price": 1, "of": None}, "new": True},
        ),
        both({}, {"price": 1, "new": True}, tags=([], ["x"])),
    ),
    "a matrix of float64 of another byte order": (
        lambda at: matrix(at, np.array([[0.1, 2.0], [3.0, 4.0]], ">f8")),
        {"a": ([0.1, 2.0], [], {}), "b": (TWO[1], [], {})},
    ),
    "a row that is too short": (
        lambda at: text(at, "sku,price,brand\na,1,x\nb,2\n"),
        "t.csv: row 2: 2 cells, the head has 3",
    ),
    "a row after lines that are blank": (
        lambda at: text(at, "sku,price\n\n\na,1\n\nb,2,3\n"),
        "t.csv: row 2 (line 6): 3 cells, the head has 2",
    ),
    "one price of many that is no number": (
        lambda at: last_of_ten(at, "price", "7", "c4nary"),
        "t.csv: row 10: price: must be a number",
    ),
    "an id that is missing": (lambda at: text(at, "sku,price\na,1\n,2\n"), "t.csv: row 2: sku: is missing"),
    "an id with a blank": (
        lambda at: text(at, "sku\na\nb c\n"),
        "t.csv: row 2: sku: must be 1 to 128 ASCII letters",
    ),
    "no column of that name": (
        lambda at: text(at, "nr,price\na,1\nb,2\n"),
        "t.csv: has no column sku; --id names the column of ids, of nr, price",
    ),
    "two columns of one name": (lambda at: text(at, "sku,x,x\na,1,2\nb,3,4\n"), "t.csv: x: two columns have"),
    "a matrix that is shorter than the table": (
        lambda at: text(at, "sku\na\nb\nc\n"),
        "emb.npy: 2 rows, and the table has 3",
    ),
    "a number of an embedding that is a word": (
        lambda at: text(at, "sku,e0,e1\na,1,2\nb,c4nary,4\n", "--id", "sku", "--features", "e*"),
        "t.csv: row 2: e0: must be a number",
    ),
    "an embedding that is too short": (
        lambda at: columns(at, emb=pa.array([[1.0, 2.0], [3.0]])),
        "t.parquet: row 2: emb: 1 numbers, the others have 2",
    ),
    "an embedding with NaN": (
        lambda at: columns(at, emb=pa.array([[1.0, 2.0], [3.0, float("nan")]])),
        "t.parquet: row 2: emb: number 2 must be finite",
    ),
    "an embedding that is null": (
        lambda at: columns(at, emb=float16([TWO[0], None])),
        "t.parquet: row 2: emb: is missing",
    ),
    "no features at all": (
        lambda at: text(at, "sku,price\na,1\nb,2\n", "--id", "sku"),
        "t.csv: has no features, and the catalogue has 2 numbers for each arm: name the columns with",
    ),
    "a line that is no JSON": (
        lambda at: lines(at, {"sku": "a", "emb": [1, 2]}, "", '{"sku": "b", "emb": [3, NaN]}'),
        "t.ndjson: row 3: is not a JSON object: NaN must be null",
    ),
    "text that is no UTF-8": (
        lambda at: columns(at, brand=pa.array([b"x", b"\xff"])),
        "t.parquet: row 2: brand: must be text in UTF-8",
    ),
    "metadata that are too long": (
        lambda at: text(at, f"sku,about\na,x\nb,{'x' * 20_000}\n"),
        "t.csv: row 2: metadata: at most 16,384 characters",
    ),
    "a quote that does not end": (
        lambda at: text(at, 'sku,x\na,1\nb,"2\n'),
        "t.csv: row 2: cannot be read as CSV",
    ),
    "gzip that ends too early": (
        lambda at: text(at, gzip.compress(b"sku\na\nb\n" * 99)[:-12], name="t.csv.gz"),
        "t.csv.gz: cannot be unpacked, it is damaged",
    ),
    "a head alone": (lambda at: text(at, "sku,price\n", "--id", "sku"), "t.csv: there are no arms in it"),
}


@pytest.mark.parametrize("name", FILES)
def test_an_awkward_file_comes_in_right_or_one_sentence_names_row_and_field(
    client: Client, run: Run, tmp_path: Path, name: str
):
    make, expected = FILES[name]
    path, flags = make(tmp_path)
    status, said, err = run("import", "c", path, *flags)
    if isinstance(expected, dict):
        assert (status, err) == (0, ""), said
        assert arms_of(client) == expected
        return
    assert (status, said) == (2, "")
    (sentence,) = err.splitlines()
    assert expected in sentence
    assert "c4nary" not in sentence
    assert arms_of(client) == {}


TABLE = "sku,price,e0,e1\n" + "".join(f"a{n},{n},1,2\n" for n in range(20))


def test_bad_rows_may_be_left_out_and_are_written_beside(client: Client, run: Run, tmp_path: Path):
    path, _ = text(tmp_path, TABLE + "b,c4nary,1,2\nc,3,1\nd e,4,1,2\n")
    flags = ["--id", "sku", "--features", "e*", "--skip-bad"]
    status, said, err = run("import", "c", path, *flags, 2)
    assert (status, said) == (2, "")
    assert "row 23: sku: must be 1 to 128" in err
    assert "--skip-bad leaves out at most 2" in err
    assert not path.with_name("t.csv.bad.csv").exists()
    assert run("import", "c", path, *flags, 3, "--dry-run")[1].startswith("3 bad rows would be left out\n")
    assert not path.with_name("t.csv.bad.csv").exists()
    status, said, err = run("import", "c", path, *flags, 3)
    assert (status, err) == (0, "")
    assert said.splitlines() == [
        f"3 bad rows were left out: {path}.bad.csv",
        "20 arms: 20 added, 0 were there",
    ]
    with path.with_name("t.csv.bad.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["field"], row["value"]) for row in rows] == [
        ("21", "price", "c4nary"),
        ("22", "", "c,3,1"),
        ("23", "sku", "d e"),
    ]
    assert rows[0]["reason"] == "must be a number"
    assert arms_of(client).keys() == {f"a{n}" for n in range(20)}


@pytest.mark.rest
def test_rows_of_a_matrix_stay_with_theirs_where_bad_rows_are_left_out(
    client: Client, run: Run, tmp_path: Path
):
    path, _ = text(tmp_path, "sku,x\na,1\nb\n\nc,3\n")
    np.save(tmp_path / "emb.npy", np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    status, _, err = run("import", "c", path, "--id", "sku", *NPY, "--skip-bad", 1)
    assert (status, err) == (0, "")
    assert arms_of(client) == {"a": ([1.0, 1.0], [], {"x": 1}), "c": ([3.0, 3.0], [], {"x": 3})}


def test_a_dry_run_shows_three_arms_as_they_would_be_sent(client: Client, run: Run, tmp_path: Path):
    path, _ = text(tmp_path, TABLE)
    status, said, err = run("import", "c", path, "--id", "sku", "--features", "e*", "--dry-run")
    assert (status, err) == (0, "")
    *shown, last = said.splitlines()
    assert [json.loads(line) for line in shown] == [
        {"id": f"a{n}", "features": [1.0, 2.0], "metadata": {"price": n}} for n in range(3)
    ]
    assert last == "dry run: 20 arms are right, nothing was sent"
    assert arms_of(client) == {}


def test_a_second_table_has_more_columns_by_the_same_ids(client: Client, run: Run, tmp_path: Path):
    """Where both have a column, that of the second counts."""
    path, _ = text(tmp_path, "sku,e0,e1,brand\na,1,2,Old\nb,3,4,\nc,5,6,\n")
    (tmp_path / "items.csv").write_text("brand;price;sku\nAero;2,50;b\nBolt;1,25;a\nZoom;1;z\n")
    status, said, err = run(
        "import", "c", path, "--id", "sku", "--features", "e*", "--metadata", tmp_path / "items.csv"
    )
    assert (status, err) == (0, "")
    assert "1 arm has no row in" in said
    assert arms_of(client) == both({"brand": "Bolt", "price": 1.25}, {"brand": "Aero", "price": 2.5}) | {
        "c": ([5.0, 6.0], [], {})
    }


def test_the_last_row_of_an_id_counts_and_it_is_said(client: Client, run: Run, tmp_path: Path):
    path, _ = text(tmp_path, "sku,e0,e1\na,9,9\nb,3,4\na,1,2\n")
    said = run("import", "c", path, "--id", "sku", "--features", "e*")[1]
    assert said == "2 arms: 2 added, 0 were there; 1 row was replaced by a later one\n"
    assert arms_of(client) == both()


@pytest.mark.rest
def test_a_file_that_is_damaged_anywhere_never_ends_in_a_traceback(client: Client, run: Run, tmp_path: Path):
    """Eight bytes are replaced at 30 places: each is an error of one line, or what it was."""
    path, flags = columns(
        tmp_path,
        sku=[f"a{n}" for n in range(200)],
        emb=pa.array(np.ones((200, 2)).tolist()),
        brand=pa.array([f"b{n}" for n in range(200)]).dictionary_encode(),
    )
    whole, rng = path.read_bytes(), np.random.default_rng(5)
    for start in np.linspace(0, len(whole) - 8, 30).astype(int):
        path.write_bytes(whole[:start] + rng.bytes(8) + whole[start + 8 :])
        status, _, err = run("import", "c", path, *flags, "--dry-run")
        assert status in {0, 2}
        assert len(err.splitlines()) == (status == 2)
