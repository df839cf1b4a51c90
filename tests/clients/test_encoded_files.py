"""`shortlist import --encode` and `--reduce`: from a table to a catalogue by one command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.cli import main
from service_process import Service, delete_all, serving
from shortlist_client import Client
from shortlist_client.answers import Display
from shortlist_client.errors import NotFound

Run = Callable[..., tuple[int, str, str]]
ROWS = 60
WORDS = ("red", "blue", "small", "large", "soft", "hard", "light", "heavy")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("encoded")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, which has no catalogue."""
    with Client(service.url) as client:
        delete_all(client)
        yield client


@pytest.fixture
def run(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["import", *map(str, arguments), "--url", service.url])
        shown = capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if not line.startswith(("checked: ", "sent: "))]
        return status, shown.out, "\n".join(errors)

    return run


def table(path: Path, rows: int = ROWS) -> Path:
    """A shop: ids, names, categories, counts, prices, a flag, texts, and what says nothing."""
    rng = np.random.default_rng(2)
    lines = ["sku;name;brand;genres;views;price;sale;about;since;url;same"]
    for n in range(rows):
        about = " ".join(rng.choice(WORDS, 7))
        views = 10 ** (n % 5)
        genres = "Drama|War" if n % 2 else "War"
        lines.append(
            f"S{n};Name {n};{'Aero' if n % 3 else 'Bolt'};{genres};{views};{10 + n % 7},50 EUR;"
            f"{'yes' if n % 4 else 'no'};{about};2024-01-{1 + n % 28:02};https://x/{n};1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def proposed(said: str) -> dict[str, Any]:
    (line,) = [line for line in said.splitlines() if line.startswith('{"fields"')]
    return {each["name"]: each for each in json.loads(line)["fields"]}


def test_a_table_becomes_a_catalogue_and_recommendations(client: Client, run: Run, tmp_path: Path):
    status, said, err = run("shop", table(tmp_path / "items.csv"), "--id", "sku", "--encode")
    assert (status, err) == (0, "")
    fields = proposed(said)
    assert {name: each["kind"] for name, each in fields.items()} == {
        "brand": "category", "genres": "categories", "views": "number", "price": "number", "sale": "number",
        "about": "hash",
    }  # fmt: skip
    assert fields["brand"]["values"] == ["Aero", "Bolt"]
    assert sorted(fields["genres"]["values"]) == ["Drama", "War"]
    assert fields["views"]["log"] is True
    assert "log" not in fields["price"]
    for name in ("name", "since", "url", "same"):
        assert f"  {name}: left out, " in said
    assert said.endswith(f"{ROWS} arms: {ROWS} added, 0 were there\n")
    catalogue = client.get_catalogue("shop")
    genres = [f"genres={each}" for each in fields["genres"]["values"]]
    assert catalogue.display == Display(title="name")
    assert catalogue.columns == (
        "brand=Aero", "brand=Bolt", *genres, "views", "price", "sale", *(f"about.{n}" for n in range(32))
    )  # fmt: skip
    features = np.array([arm.features for arm in client.arms("shop")])
    numbers = features[:, [catalogue.columns.index(name) for name in ("views", "price", "sale")]]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(numbers.std(axis=0), 1, atol=1e-3)
    arm = client.get_arm("shop", "S1")
    assert arm.metadata["price"] == 11.5
    assert arm.metadata["sale"] == 1
    client.put_bandit("home", catalogue="shop", policy="sub_ts", scope="per_key")
    assert len(client.choose("home", key="ann", k=5).arms) == 5


def test_later_imports_take_the_fields_of_the_catalogue(client: Client, run: Run, tmp_path: Path):
    path = table(tmp_path / "items.csv")
    assert run("shop", path, "--id", "sku", "--encode")[0] == 0
    assert run("shop", path, "--id", "sku")[:2] == (
        0,
        f"price: EUR is left out\n{ROWS} arms: 0 added, {ROWS} were there\n",
    )
    more = tmp_path / "more.csv"
    more.write_text("sku,brand,price,views,sale,genres\nN1,7,€8.50,5,true,War\nN2,,,,,\n")
    absent = "no column has the name of the field about of the catalogue: arms are without it\n"
    assert run("shop", more, "--id", "sku")[:2] == (
        0,
        f"price: EUR is left out\n{absent}2 arms: 2 added, 0 were there\n",
    )
    assert dict(client.get_arm("shop", "N1").metadata) == {
        "brand": "7", "price": 8.5, "views": 5, "sale": 1, "genres": ["War"]
    }  # fmt: skip
    assert not np.any(client.get_arm("shop", "N2").features)
    for content, words in (
        ("sku,price\nN3,9\nN4,c4nary\n", "row 2: price: must be a number"),
        ("sku,views\nN3,9\nN4,-1\n", "row 2: views: must be above -1"),
        ("sku,price\nN3,9\nN4,1e16\n", "row 2: price: must be at most 1e15"),
    ):
        more.write_text(content)
        status, said, err = run("shop", more, "--id", "sku")
        assert (status, said) == (2, "")
        assert words in err
        assert "c4nary" not in err
    assert client.get_catalogue("shop").size == ROWS + 2


def test_a_bad_row_makes_no_catalogue(client: Client, run: Run, tmp_path: Path):
    path = table(tmp_path / "items.csv")
    path.write_text(path.read_text() + "S 61;x;Aero;War;1;2;yes;a;2024-01-01;u;1\n")
    status, said, err = run("shop", path, "--id", "sku", "--encode")
    assert status == 2
    assert proposed(said)["price"]["kind"] == "number", "the proposal is shown before the refusal"
    assert f"row {ROWS + 1}: sku: must be" in err
    with pytest.raises(NotFound):
        client.get_catalogue("shop")


def dirty(path: Path) -> Path:
    """Brands in six spellings of two, and a price in three of sixty rows that is none."""
    brands = ("ONDA", "Onda ", "onda", "ONDA", "Aero", "aero")
    prices = {5: "on request", 11: "ask", 41: "2024-01-01"}
    rows = [f"S{n},{brands[n % 6]},{prices.get(n, 10 + n % 7)}" for n in range(ROWS)]
    path.write_text("sku,brand,price\n" + "\n".join(rows) + "\n")
    return path


def test_cells_that_are_bad_may_be_missing_and_spellings_of_a_value_one(
    client: Client, run: Run, tmp_path: Path
):
    path = dirty(tmp_path / "items.csv")
    brands = 'brand: "ONDA" 20, "Onda" 10, "onda" 10: they differ only in case or blanks'
    status, said, err = run("shop", path, "--id", "sku", "--encode")
    assert status == 2
    assert said.splitlines()[:1] == [brands]
    assert "--tidy joins them" in said
    assert len(proposed(said)["brand"]["values"]) == 5
    assert err.endswith(
        "items.csv: row 6: price: must be a number; 3 rows are bad; "
        "--bad-as-missing price takes such cells for missing; --skip-bad 3 leaves them out"
    )
    flags = ["--id", "sku", "--tidy", "--bad-as-missing"]
    status, said, err = run("shop", path, "--encode", *flags, "price")
    assert (status, err) == (0, "")
    assert {brands, "price: 3 bad cells are taken for missing, the first in row 6"} <= {*said.splitlines()}
    assert proposed(said)["brand"]["values"] == ["ONDA", "Aero"]
    metadata = [dict(client.get_arm("shop", f"S{n}").metadata) for n in (1, 2, 5)]
    assert metadata == [{"brand": "ONDA", "price": 11}, {"brand": "ONDA", "price": 12}, {"brand": "Aero"}]
    # later tables take the spelling of the catalogue
    (tmp_path / "more.csv").write_text("sku,brand,price\nT1,oNDa,7\nT2,  AERO,x\n")
    status, said, err = run("shop", tmp_path / "more.csv", *flags)
    assert (status, err) == (0, "")
    assert 'brand: "oNDa" 1, "ONDA" of the catalogue: they differ only in case or blanks' in said
    metadata = [dict(client.get_arm("shop", name).metadata) for name in ("T1", "T2")]
    assert metadata == [{"brand": "ONDA", "price": 7}, {"brand": "Aero"}]
    assert not client.get_catalogue("shop").unlisted
    status, said, err = run("shop", path, *flags, "prize")
    assert (status, said) == (2, "")
    assert "--bad-as-missing: no column of metadata is named prize" in err


def embeddings(path: Path, rows: int = ROWS, rank: int = 5) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(4)
    found = rng.normal(size=(rows, rank)) * [5, 4, 3, 0.2, 0.1][:rank] @ rng.normal(size=(rank, 12))
    np.save(path, found.astype(np.float32))
    return found.astype(np.float32)


def test_reduce_fits_the_whole_file_without_a_centre(client: Client, run: Run, tmp_path: Path):
    path, rows = table(tmp_path / "items.csv"), embeddings(tmp_path / "emb.npy")
    flags = ["--id", "sku", "--features", "emb.npy", "--reduce", 3]
    status, said, err = run("shop", path, *flags)
    assert (status, err) == (0, "")
    _, values, directions = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    share = np.sum(values[:3] ** 2) / np.sum(values**2)
    assert f"3 principal components of 12 numbers keep {share:.1%} of their squares" in said
    features = np.array([client.get_arm("shop", f"S{n}").features for n in range(ROWS)])
    np.testing.assert_allclose(np.abs(features), np.abs(rows @ directions[:3].T), atol=1e-4)
    assert run("shop", path, *flags[:4])[:2] == (
        0,
        f"price: EUR is left out\n{ROWS} arms: 0 added, {ROWS} were there\n",
    )
    version = client.get_catalogue("shop").version
    ids = [f"S{n}" for n in range(ROWS)]
    documents = [client.get_arm("shop", name).metadata for name in ids]
    done = client.upsert_arms("shop", rows, ids=ids, metadata=documents)
    assert done.version == version, "what the command has reduced has the bits of the service"


def test_a_catalogue_that_is_made_otherwise_is_left_alone(client: Client, run: Run, tmp_path: Path):
    client.put_catalogue("shop", dim=3)
    path = table(tmp_path / "items.csv")
    embeddings(tmp_path / "emb.npy")
    for flags in (["--encode"], ["--features", "emb.npy", "--reduce", 2]):
        status, said, err = run("shop", path, "--id", "sku", *flags)
        assert (status, said) == (2, "")
        assert "the catalogue shop is there already and is made otherwise" in err
    (tmp_path / "ids.csv").write_text("sku\n" + "".join(f"S{n}\n" for n in range(9)))
    status, _, err = run("other", tmp_path / "ids.csv", "--id", "sku", "--encode")
    assert status == 2
    assert "--encode: the table has no column but the ids" in err
    (tmp_path / "ids.csv").write_text("sku,title\n" + "".join(f"S{n},Lamp of {n} cm\n" for n in range(9)))
    assert "title: text, hashed" in run("other", tmp_path / "ids.csv", "--id", "sku", "--encode")[1]
