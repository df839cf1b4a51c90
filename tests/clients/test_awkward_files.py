"""Tables as people have them: each file comes in right, or one sentence names the row and the field."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

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


def archive(at: Path) -> Made:
    made = text(at, "sku\na\nb\n")
    np.savez(at / "emb.npz", np.array(TWO))
    (at / "emb.npz").rename(at / "emb.npy")
    return made


def pipe(at: Path) -> Made:
    os.mkfifo(at / "t.csv")
    return at / "t.csv", ["--id", "sku", *NPY]


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
    "halves with a decimal comma, of three digits": (
        lambda at: text(at, 'sku,price,mass\na,"0,500",0.500 EUR\nb,"0,250",0.250 EUR\n'),
        both({"price": 0.5, "mass": 0.5}, {"price": 0.25, "mass": 0.25}),
    ),
    "embeddings with decimal commas, of three digits": (
        lambda at: text(at, "sku;e0;e1\na;1,000;2,000\nb;3;4,0\n", "--id", "sku", "--features", "e*"),
        both(),
    ),
    "marks of thousands that come twice": (
        lambda at: text(at, "sku;n;m\na;1.234.567;1,234,567\nb;2;3\n"),
        both({"n": 1_234_567, "m": 1_234_567}, {"n": 2, "m": 3}),
    ),
    "whole numbers of 18 digits, and articles of 19": (
        lambda at: text(at, f"sku,n,article\na,{10**18 - 1},{10**18}\nb,2,3\n"),
        both({"n": 10**18 - 1, "article": f"{10**18}"}, {"n": 2, "article": "3"}),
    ),
    "words that are abbreviations too": (
        lambda at: text(at, "sku,country,gender,sale\na,NO,F,n\nb,NO,F,y\n"),
        both({"country": "NO", "gender": "F", "sale": False}, {"country": "NO", "gender": "F", "sale": True}),
    ),
    "times in UTC, as databases write them": (
        lambda at: text(at, "sku,on\na,2024-01-31 10:00:00 UTC\nb,2024-01-31 11:00:00 UTC\n"),
        both({"on": "2024-01-31T10:00:00Z"}, {"on": "2024-01-31T11:00:00Z"}),
    ),
    "tabs": (lambda at: text(at, "sku\tprice\na\t1234.5\nb\t7\n", name="t.tsv"), PRICES),
    "bars": (lambda at: text(at, "sku|price\na|1234.5\nb|7\n"), PRICES),
    "a separator that is named, of Excel": (lambda at: text(at, "sep=;\nsku;price\na;1234,5\nb;7\n"), PRICES),
    "a mark of byte order and CRLF": (
        lambda at: text(at, b"\xef\xbb\xbfsku,price\r\na,1234.5\r\nb,7\r\n"),
        PRICES,
    ),
    "UTF-16": (lambda at: text(at, "sku,brand\na,Søren\nb,\n".encode("utf-16")), both({"brand": "Søren"})),
    "UTF-16 without a mark": (
        lambda at: text(at, "sku,brand\na,Søren\nb,\n".encode("utf-16-le")),
        both({"brand": "Søren"}),
    ),
    "Windows-1252": (
        lambda at: text(at, "sku,brand\na,Café\nb,\n".encode("cp1252")),
        both({"brand": "Café"}),
    ),
    "an encoding that is named": (
        lambda at: text(
            at, "sku,brand\na,Ж\nb,\n".encode("cp1251"), "--id", "sku", *NPY, "--encoding", "cp1251"
        ),
        both({"brand": "Ж"}),
    ),
    "blank lines, and lines of separators": (
        lambda at: text(at, "\nsku,price\n\na,1234.5\n,\n\nb,7\n,\n"),
        PRICES,
    ),
    "quotes, with separators and line breaks in them": (
        lambda at: text(at, 'sku,about\n"a","one, ""two""\nthree"\nb,""\n'),
        both({"about": 'one, "two"\nthree'}),
    ),
    "blanks around quotes, and a quote within": (
        lambda at: text(at, '"sku" , "size"\n"a" , "5"" pipe"\nb, 6" pipe\n'),
        both({"size": '5" pipe'}, {"size": '6" pipe'}),
    ),
    "quotes as Spark writes them": (
        lambda at: text(at, 'sku,about,x\n"a","say \\"hi\\", now",1\n"b","no",2\n'),
        both({"about": 'say "hi", now', "x": 1}, {"about": "no", "x": 2}),
    ),
    "gzip": (
        lambda at: text(at, gzip.compress(b"sku,price\na,1234.5\nb,7\n"), name="t.csv.gz"),
        PRICES,
    ),
    "more cells than the head, all empty": (lambda at: text(at, "sku,price\na,1234.5,,\nb,7,\n"), PRICES),
    "prices with a currency": (lambda at: text(at, 'sku,price\na,"€ 1,234.50"\nb,€7\n'), PRICES),
    "prices with a currency behind": (lambda at: text(at, "sku;price\na;1.234,50 EUR\nb;7,00 EUR\n"), PRICES),
    "prices of Switzerland": (lambda at: text(at, "sku,price\na,CHF 1'234.50\nb,CHF 7.00\n"), PRICES),
    "prices of two currencies stay texts": (
        lambda at: text(at, "sku,price\na,$5\nb,€5\n"),
        both({"price": "$5"}, {"price": "€5"}),
    ),
    "codes with zeros in front stay texts": (
        lambda at: text(at, "sku,zip\na,00501\nb,10115\n"),
        both({"zip": "00501"}, {"zip": "10115"}),
    ),
    "numbers with as many digits as pandas writes": (
        lambda at: (
            pd.DataFrame({"sku": ["a", "b"], "ctr": [0.1 * 3, 0.5]}).to_csv(at / "p.csv", index=False),
            text(at, (at / "p.csv").read_bytes()),
        )[1],
        both({"ctr": 0.1 * 3}, {"ctr": 0.5}),
    ),
    "numbers of articles of 20 digits stay texts": (
        lambda at: text(at, "sku,ean\na,12345678901234567890\nb,7\n"),
        both({"ean": "12345678901234567890"}, {"ean": "7"}),
    ),
    "and beside numbers of a typed file, as codes with zeros in front do": (
        lambda at: lines(
            at,
            {"sku": "a", "emb": [1, 2], "ean": "12345678901234567890", "zip": 10115},
            {"sku": "b", "emb": [3, 4], "ean": 7, "zip": "00501"},
        ),
        both({"ean": "12345678901234567890", "zip": 10115}, {"ean": 7, "zip": "00501"}),
    ),
    "a column that is said to be of texts": (
        lambda at: text(at, "sku,size\na,38\nb,40\n", "--id", "sku", *NPY, "--text", "size"),
        both({"size": "38"}, {"size": "40"}),
    ),
    "missing values of all spellings": (
        lambda at: text(at, "sku,price,on,of\na,NaN,NaT,null\nb,1.5,2024-01-31,x\n"),
        both({}, {"price": 1.5, "on": "2024-01-31", "of": "x"}),
    ),
    "dates of Germany": (
        lambda at: text(at, "sku,on\na,31.01.2024\nb,01.02.2024\n"),
        both({"on": "2024-01-31"}, {"on": "2024-02-01"}),
    ),
    "dates of America": (
        lambda at: text(at, "sku,on\na,01/31/2024\nb,02/01/2024\n"),
        both({"on": "2024-01-31"}, {"on": "2024-02-01"}),
    ),
    "dates that nobody can read stay texts": (
        lambda at: text(at, "sku,on\na,01/02/2024\nb,02/03/2024\n"),
        both({"on": "01/02/2024"}, {"on": "02/03/2024"}),
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
    "lists with bars": (
        lambda at: text(at, "sku,genres\na,Drama|War\nb,War|Drama\n"),
        both({"genres": ["Drama", "War"]}, {"genres": ["War", "Drama"]}),
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
    "a table of pandas as NDJSON": (
        lambda at: frame(
            at, lambda t, p: t.drop(columns="released").to_json(p, orient="records", lines=True), "t.ndjson"
        ),
        {
            "7": (TWO[0], [], {"brand": "Aero", "price": 1.5, "sale": True}),
            "8": (TWO[1], [], {"sale": False}),
        },
    ),
    "a table of pandas as one JSON list": (
        lambda at: frame(at, lambda t, p: t[["sku", "sale"]].to_json(p, orient="records"), "t.json"),
        {"7": (TWO[0], [], {"sale": True}), "8": (TWO[1], [], {"sale": False})},
    ),
    "a folder of Spark": (spark, both({"brand": "Aero", "price": 9.5}, {"price": 9.5})),
    "texts as polars writes them, categories, and a column of nulls": (
        lambda at: columns(
            at,
            sku=pa.array(["a", "b"], pa.string_view()),
            brand=pa.array(["Aero", None]).dictionary_encode(),
            none=pa.nulls(2),
            tags=pa.array([["x", None], None], pa.list_(pa.string_view())),
        ),
        both({"brand": "Aero"}, tags=(["x"], [])),
    ),
    "lists of float16": (lambda at: columns(at, emb=float16(TWO)), both()),
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
    "times of HTTP, and tags between commas": (
        lambda at: text(
            at,
            'sku,since,tags\na,"Wed, 31 Jan 2024 10:00:00 GMT","x, y"\n'
            'b,"Thu, 01 Feb 2024 10:00:00 GMT","x, z"\n',
        ),
        both(
            {"since": "2024-01-31T10:00:00Z"},
            {"since": "2024-02-01T10:00:00Z"},
            tags=(["x", "y"], ["x", "z"]),
        ),
    ),
    "UUIDs": (
        lambda at: columns(at, of=pa.array([UUID(int=7).bytes, None], pa.uuid())),
        both({"of": "00000000-0000-0000-0000-000000000007"}),
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
    "a matrix of small whole numbers, column by column": (
        lambda at: matrix(at, np.asfortranarray(TWO, dtype=np.int8)),
        both(),
    ),
    "null tags and metadata, as an export has its columns": (
        lambda at: lines(
            at,
            {"id": "a", "features": [1, 2], "tags": None, "metadata": None},
            {"id": "b", "features": [3, 4]},
            flags=(),
        ),
        both(),
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
    "one flag of many that is neither": (
        lambda at: last_of_ten(at, "sale", "yes", "c4nary"),
        "t.csv: row 10: sale: must be true or false",
    ),
    "one date of many that is none": (
        lambda at: last_of_ten(at, "on", "2024-01-31", "2024-02-31"),
        "t.csv: row 10: on: must be a date",
    ),
    "an id that is missing": (lambda at: text(at, "sku,price\na,1\n,2\n"), "t.csv: row 2: sku: is missing"),
    "an id that pandas has made a float, and rounded": (
        lambda at: columns(at, sku=[7.0, 1234567890123456789.0]),
        "t.parquet: row 2: sku: is a float above 2^53, which has lost digits",
    ),
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
    "an archive of arrays in the place of a matrix": (
        archive,
        "emb.npy: is an archive of arrays: save the one of the features with numpy.save",
    ),
    "a number of an embedding that is missing": (
        lambda at: text(at, "sku,e0,e1\na,1,2\nb,3,\n", "--id", "sku", "--features", "e*"),
        "t.csv: row 2: e1: is missing",
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
    "an embedding that was cut by print": (
        lambda at: text(at, 'sku,emb\na,"[1. 2.]"\nb,"[3. ... 4.]"\n', "--id", "sku", "--features", "emb"),
        "t.csv: row 2: emb: must be a list of numbers",
    ),
    "no features at all": (
        lambda at: text(at, "sku,price\na,1\nb,2\n", "--id", "sku"),
        "t.csv: has no features, and the catalogue has 2 numbers for each arm: name the columns with",
    ),
    "a pattern that fits no column": (
        lambda at: text(at, "sku,price\na,1\nb,2\n", "--id", "sku", "--features", "emb_*"),
        "--features: no column is named emb_*",
    ),
    "a line that is no JSON": (
        lambda at: lines(at, {"sku": "a", "emb": [1, 2]}, "", '{"sku": "b", "emb": [3, NaN]}'),
        "t.ndjson: row 3: is not a JSON object: NaN must be null",
    ),
    "an infinite number": (
        lambda at: columns(at, price=[1.0, float("inf")]),
        "t.parquet: row 2: price: must be finite",
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
    "a spreadsheet": (
        lambda at: text(at, b"PK\x03\x04c4nary", name="t.csv"),
        "t.csv: is a spreadsheet or a zip",
    ),
    "gzip that ends too early": (
        lambda at: text(at, gzip.compress(b"sku\na\nb\n" * 99)[:-12], name="t.csv.gz"),
        "t.csv.gz: cannot be unpacked, it is damaged",
    ),
    "more columns than anybody has": (
        lambda at: text(at, "sku," + ",".join(f"c{n}" for n in range(10_001)) + "\n"),
        "t.csv: has 10,002 columns, at most 10,000: put embeddings into an .npy file",
    ),
    "a file of zeros": (lambda at: text(at, bytes(1 << 20)), "t.csv: begins with zeros"),
    "a pipe": (pipe, "t.csv: is a pipe or a device, and files are read several times: save it first"),
    "both decimal marks": (
        lambda at: text(at, 'sku,price\na,"0,5"\nb,0.5\n'),
        "t.csv: row 1: price: must be a number with a decimal point",
    ),
    "an empty file": (lambda at: text(at, ""), "t.csv: has no rows, and no head"),
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


def test_a_decimal_comma_is_no_list_of_two(run: Run, tmp_path: Path):
    """Where the catalogue is not there yet, so that nobody knows how many numbers there are."""
    path, flags = text(tmp_path, "sku\tx\na\t1,234\nb\t0,5\n", "--id", "sku", "--features", "x")
    status, said, err = run("import", "new", path, *flags, "--dry-run")
    assert (status, err) == (0, "")
    assert [json.loads(line)["features"] for line in said.splitlines()[:2]] == [[1.234], [0.5]]


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


AMBIGUOUS = {
    "separated by commas": ('sku,e,price\na,"1,234","1,234"\n', "a mark of thousands", 1234),
    "separated by semicolons": ("sku;e;price\na;1,234;1,234\n", "a decimal mark", 1.234),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", AMBIGUOUS)
def test_numbers_that_are_ambiguous_are_said_and_read_alike_everywhere(
    client: Client, run: Run, tmp_path: Path, name: str
):
    content, meaning, number = AMBIGUOUS[name]
    path, _ = text(tmp_path, content)
    client.put_catalogue("one", dim=1)
    client.put_bandit("b", catalogue="one", policy="linear_ts", scope="global")
    status, said, err = run("import", "one", path, "--id", "sku", "--features", "e", "--dry-run")
    assert (status, err) == (0, "")
    lines = said.splitlines()
    words = f"numbers such as 1,234 are ambiguous: it is taken for {meaning}"
    assert lines[:2] == [f"price: {words}", f"e: {words}"]
    assert json.loads(lines[2]) == {"id": "a", "features": [number], "metadata": {"price": number}}
    columns = ["--arm-column", "sku", "--value-column", "price", "--dry-run"]
    status, said, err = run("import", "--history", "b", path, *columns)
    assert (status, err) == (0, "")
    assert said.splitlines()[0] == f"price: {words}"
    assert json.loads(said.splitlines()[1])["value"] == number
    client.delete_bandit("b")


@pytest.mark.rest
@pytest.mark.parametrize("content", ["sku,e\na,1\nb,2.5\n", "sku,e\na,[1]\nb,[2.5]\n"])
def test_a_catalogue_of_one_number_has_it_in_a_column(client: Client, run: Run, tmp_path: Path, content: str):
    client.put_catalogue("one", dim=1)
    status, _, err = run("import", "one", text(tmp_path, content)[0], "--id", "sku", "--features", "e")
    assert (status, err) == (0, "")
    assert {arm.id: list(arm.features) for arm in client.arms("one")} == {"a": [1.0], "b": [2.5]}


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
