"""`shortlist import` and `export` against a real service: what goes out comes in again, in every format."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.api import request_limits as limits
from app.api.api_keys import new_key
from app.api.fields import IDENTIFIER
from dropping_proxy import DroppingProxy
from server.cli import main
from service_process import Service, delete_all, serving
from shortlist_client import Client
from shortlist_client.answers import Arm
from shortlist_client.errors import ConnectionFailed
from shortlist_files import arm_rows, exporting
from shortlist_files.importing import import_arms

pytestmark = pytest.mark.rest

DIM = 3
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("files")) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service, which is empty."""
    with Client(service.url) as client:
        delete_all(client)
        client.put_catalogue("c", dim=DIM, index={"kind": "exact"})
        yield client


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("SHORTLIST_KEY", raising=False)

    def run(*arguments: str | Path, url: str = service.url) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([*map(str, arguments), "--url", url])
        except SystemExit as ended:
            status = int(ended.code or 0)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def arms_of(client: Client, name: str = "c") -> list[tuple[Any, ...]]:
    return [(arm.id, arm.features, arm.tags, dict(arm.metadata)) for arm in client.arms(name)]


PROGRESS = ("checked: ", "sent: ", "arms: ", "learners: ", "log: ")


def told(err: str) -> str:
    """What is said besides the lines of progress: one line."""
    (line,) = [line for line in err.splitlines() if not line.startswith(PROGRESS)]
    assert line.startswith("shortlist: ")
    return line


def fill(client: Client, *, plain: bool = False) -> None:
    rows = np.random.default_rng(0).normal(size=(40, DIM))
    arms = [{"id": f"a{number}", "features": row.tolist()} for number, row in enumerate(rows)]
    if not plain:
        arms[3] |= {"tags": ["new", 'é,"\n']}
        arms[5] |= {"metadata": {"price": 1.5, "of": {"x": [1, None, "\u2028"]}}}
    client.upsert_arms("c", arms)  # type: ignore[arg-type]
    client.upsert_arms("c", [[1e-300, -0.0, 1e6]], ids=["a7"])  # last, since it was changed last


@pytest.mark.parametrize("ending", [".ndjson", ".jsonl", ".csv", ".parquet", ".npy"])
def test_an_export_comes_in_again_as_it_was(client: Client, run: Run, tmp_path: Path, ending: str):
    fill(client, plain=ending == ".npy")
    out = tmp_path / f"arms{ending}"
    status, said, err = run("export", "catalogue", "c", "--out", out)
    assert (status, said.split(" in ")[0]) == (0, "40 arms"), err
    assert {path.name for path in tmp_path.iterdir()} == {
        out.name,
        *(["arms.ids"] if ending == ".npy" else []),
    }
    client.put_catalogue("d", dim=DIM)
    for shown in ("40 added, 0 were there", "0 added, 40 were there"):
        status, said, err = run("import", "d", out)
        assert (status, said) == (0, f"40 arms: {shown}\n"), err
        assert arms_of(client, "d") == arms_of(client), "the same, in the same order"
    assert client.get_catalogue("d").version == 1, "the second time nothing changed"


@pytest.mark.parametrize("ending", ["ndjson", "parquet", "npy"])
def test_encoded_arms_come_in_again_and_reduced_ones_say_what_they_lack(
    client: Client, run: Run, tmp_path: Path, ending: str
):
    price = {"name": "price", "kind": "number", "mean": 3.0, "scale": 2.0, "log": True}
    for name in ("encoded", "again"):
        client.put_catalogue(name, features={"fields": [price]})
    client.upsert_arms("encoded", [{"id": f"a{n}", "metadata": {"price": n}} for n in range(20)])
    out = tmp_path / f"encoded.{ending}"
    assert run("export", "catalogue", "encoded", "--out", out)[0] == 0
    status, _, told = run("import", "again", out)
    if ending == "npy":  # it has no room for metadata: features alone are others than these say
        assert (status, "encoded from the metadata" in told) == (2, True)
    else:
        assert status == 0
        assert client.get_arm("again", "a7") == client.get_arm("encoded", "a7")
    basis = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    client.put_catalogue("reduced", features={"embedding": {"dim": 4, "reduce": {"to": 2, "basis": basis}}})
    client.put_catalogue("waits", features={"embedding": {"dim": 4, "reduce": 2}})
    rows = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    for name in ("reduced", "waits"):
        client.upsert_arms(name, rows, ids=[f"a{n}" for n in range(20)])
    out = tmp_path / f"reduced.{ending}"
    told = run("export", "catalogue", "reduced", "--out", out)[1]
    assert "for a catalogue with dim 2: what embeddings of 4 numbers were is not in them" in told
    client.put_catalogue("plain", dim=2)
    assert run("import", "plain", out)[0] == 0
    assert client.get_arm("plain", "a7").features == client.get_arm("reduced", "a7").features
    out = tmp_path / f"waits.{ending}"
    assert run("export", "catalogue", "waits", "--out", out)[0] == 0
    client.put_catalogue("waits-too", features={"embedding": {"dim": 4, "reduce": 2}})
    assert run("import", "waits-too", out)[0] == 0
    assert client.fit_features("waits-too").reduction == client.fit_features("waits").reduction


@pytest.mark.parametrize("ending", [".ndjson", ".csv", ".parquet"])
def test_learners_come_in_bit_for_bit_and_choose_the_same(
    client: Client, run: Run, tmp_path: Path, ending: str
):
    fill(client)
    settings: dict[str, Any] = {"policy": "linear_ts", "scope": "per_key", "prior": "plain"}
    client.put_bandit("b", catalogue="c", **settings)
    items = [
        {"id": f"o{number}", "key": f"k{number % 5}", "arm": f"a{number % 40}", "value": number / 7}
        for number in range(60)
    ]
    client.observe("b", items, wait="applied")  # type: ignore[arg-type]
    arms, learners = tmp_path / "arms.parquet", tmp_path / f"learners{ending}"
    assert run("export", "catalogue", "c", "--out", arms)[0] == 0
    assert run("export", "learners", "b", "--out", learners)[:2] == (0, f"5 learners in {learners}\n")
    before = list(client.learners("b", include="state"))
    choices = [client.choose("b", key=f"k{n % 6}", k=3, seed=n, once=False).arms for n in range(30)]
    client.delete_bandit("b")
    client.delete_catalogue("c")
    client.put_catalogue("c", dim=DIM, index={"kind": "exact"})
    assert run("import", "c", arms)[0] == 0
    client.put_bandit("b", catalogue="c", **settings)
    for _ in range(2):
        status, said, err = run("import", "--learners", "b", learners)
        assert (status, said) == (0, "5 learners are as in the files\n"), err
    after = list(client.learners("b", include="state"))
    assert {each.key: each for each in after} == {each.key: each for each in before}
    again = [client.choose("b", key=f"k{n % 6}", k=3, seed=n, once=False).arms for n in range(30)]
    assert again == choices
    client.observe("b", [{"id": "more", "key": "k1", "arm": "a1", "value": 1.0}], wait="applied")
    assert "rewards of its own" in told(run("import", "--learners", "b", learners)[2])


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def matrix(path: Path, rows: Any, ids: str = "a\nb\n") -> Path:
    np.save(path, rows)
    path.with_suffix(".ids").write_text(ids)
    return path


GOOD = '{"id": "a", "features": [1, 2, 3]}\n'
MANY_FIELDS = {"id": "b", "features": [1, 2, 3], "metadata": {"in": [{str(n): n} for n in range(256)]}}
HEAD = "id,x0,x1,x2,tags,metadata\n"
TWO = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no file": (lambda at: at / "a.csv", "a.csv: No such file"),
    "an unknown ending": (lambda at: text(at / "a.xyz", GOOD), "must end with .csv"),
    "short": (
        lambda at: text(at / "a.ndjson", GOOD + '{"id": "b", "features": [1, 2]}'),
        "a.ndjson: row 2: features: 2 numbers, the others have 3",
    ),
    "a wrong type": (
        lambda at: text(at / "a.ndjson", GOOD + '{"id": "b", "features": [1, 2, "c4nary"]}'),
        "a.ndjson: row 2: features: must be a list of numbers",
    ),
    "too many fields": (
        lambda at: text(at / "a.ndjson", json.dumps(MANY_FIELDS)),
        "a.ndjson: row 1: metadata: at most 256 fields",
    ),
    "a column too few": (lambda at: text(at / "a.csv", "id,x0,x1\na,1,2\n"), "a.csv: has no column x2"),
    "no number": (lambda at: text(at / "a.csv", HEAD + "a,1,c4nary,3,,\n"), "a.csv: row 1: x1: must be"),
    "metadata that are no JSON": (
        lambda at: text(at / "a.csv", HEAD + 'a,1,2,3,,"{c4nary"\n'),
        "row 1: metadata: must be the text of a JSON object",
    ),
    "a pickle": (lambda at: matrix(at / "a.npy", np.array([[{}]])), "a.npy: is not an .npy file"),
    "no ids": (lambda at: (np.save(at / "a.npy", TWO), at / "a.npy")[1], "a.ids: No such file"),
    "ids too few": (lambda at: matrix(at / "a.npy", TWO, "a\n"), "a.ids: 1 ids for 2 rows"),
    "no Parquet": (lambda at: text(at / "a.parquet", "PAR1"), "a.parquet: is not a Parquet file"),
    "a row without numbers": (
        lambda at: parquet(at / "a.parquet", id=["a", "b"], features=[TWO[0], None]),
        "a.parquet: row 2: features: is missing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_changes_nothing_and_the_first_mistake_is_named(
    client: Client, run: Run, tmp_path: Path, name: str
):
    make, words = BAD[name]
    good = text(tmp_path / "good.ndjson", '{"id": "good", "features": [1, 2, 3]}\n')
    bad = make(tmp_path)
    if bad.suffix == ".csv":
        good = text(tmp_path / "good.csv", "id,x0,x1,x2\ngood,1,2,3\n")
    status, said, err = run("import", "c", good, bad)
    assert (status, said) == (2, "")
    assert words in told(err)
    assert "c4nary" not in err
    assert arms_of(client) == []


def test_of_an_id_that_comes_again_the_last_row_counts(client: Client, run: Run, tmp_path: Path):
    lines = GOOD + '{"id": "b", "features": [4, 5, 6]}\n' + GOOD.replace("1", "7")
    status, said, _ = run("import", "c", text(tmp_path / "a.ndjson", lines))
    assert (status, said) == (0, "2 arms: 2 added, 0 were there; 1 row was replaced by a later one\n")
    assert {arm[0]: arm[1] for arm in arms_of(client)} == {"a": (7.0, 2.0, 3.0), "b": (4.0, 5.0, 6.0)}


def test_an_import_through_a_connection_that_breaks(client: Client, service: Service, tmp_path: Path):
    """Requests are sent again, and what they did is not done twice."""
    rows = np.random.default_rng(0).normal(size=(500, DIM))
    paths = list[Path]()
    for first in range(0, 500, 5):  # a file is read by itself: each is a request
        ids = "".join(f"a{number}\n" for number in range(first, first + 5))
        paths.append(matrix(tmp_path / f"{first}.npy", rows[first : first + 5], ids))
    with DroppingProxy(service.port, seed=1) as proxy, Client(f"http://127.0.0.1:{proxy.port}") as dropped:
        proxy.drop = 1 / 12
        assert import_arms(dropped, "c", paths, request_bytes=1)[0].startswith("500 arms:")
        assert proxy.dropped > 0
    assert [(arm[0], arm[1]) for arm in arms_of(client)] == [
        (f"a{number}", tuple(row)) for number, row in enumerate(rows.tolist())
    ]


def test_an_export_that_breaks_off_leaves_nothing(
    client: Client, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill(client)

    def pages(page: object) -> Iterator[Any]:
        yield [Arm("a", (1.0,) * DIM, (), {})]
        raise ConnectionFailed("it broke")

    monkeypatch.setattr(exporting, "pages", pages)
    for name in ("a.csv", "a.ndjson", "a.parquet", "a.npy"):
        status, _, err = run("export", "catalogue", "c", "--out", tmp_path / name)
        assert (status, told(err)) == (2, "shortlist: it broke")
    assert list(tmp_path.iterdir()) == []


def test_keys(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch):
    (admin, first), (reader, second) = new_key("a", ["admin"]), new_key("r", ["read"])
    path = text(tmp_path / "a.ndjson", GOOD)
    with (
        serving(tmp_path / "s", SHORTLIST_API_KEYS=f"{first} {second}") as service,
        Client(service.url, key=admin) as client,
    ):
        client.put_catalogue("c", dim=DIM)
        for key, words in (
            ((), "401 unauthorized: an API key is needed"),
            (("--key", "sl_other"), "401 unauthorized: the API key is not known"),
            (("--key", reader), "403 forbidden: the API key lacks the scope admin"),
            (("--key", "bad\nkey"), "key must be printable ASCII"),
        ):
            status, said, err = run("import", "c", path, *key, url=service.url)
            assert (status, said) == (2, "")
            assert words in told(err)
            assert arms_of(client) == []
        monkeypatch.setenv("SHORTLIST_KEY", admin)
        assert run("import", "c", path, url=service.url)[0] == 0
        assert len(arms_of(client)) == 1


def test_the_limits_are_those_of_the_service():
    assert arm_rows.ROWS == limits.MAX_BLOCK_ARMS
    assert arm_rows.MAX_FEATURE == limits.MAX_FEATURE
    assert (arm_rows.MAX_TAGS, arm_rows.MAX_TAG_CHARS) == (limits.MAX_TAGS, limits.MAX_TAG_CHARS)
    assert arm_rows.MAX_METADATA_CHARS == limits.MAX_METADATA_CHARS
    assert arm_rows.MAX_METADATA_FIELDS == limits.MAX_METADATA_FIELDS
    assert arm_rows.IDENTIFIER.pattern == IDENTIFIER


WITHOUT_FILES = "import sys; sys.modules['shortlist_files'] = None; "


def without_files(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process that has imported nothing yet."""
    command = [sys.executable, "-c", WITHOUT_FILES + code, *words]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_without_the_package_of_files_the_client_and_the_commands_name_it():
    with pytest.raises(ImportError, match="the package shortlist-files: import shortlist_files"):
        importlib.import_module("shortlist_client.files")
    for line in (
        "import c a.csv",
        "export catalogue c --out a.csv",
        "embed --history a.csv --catalogue d --key-column who --arm-column what",
        "begin d --items a.csv --id id --history b.csv --key who --arm what",
        "evaluate a.ndjson --policy {} --catalogue c.ndjson",
    ):
        words = line.split()
        ended = without_files("from server.cli import main; sys.exit(main(sys.argv[1:]))", *words)
        assert (ended.returncode, ended.stdout) == (2, ""), words
        assert told(ended.stderr) == f"shortlist: {words[0]} needs the package shortlist-files, installed"


def test_the_service_is_made_without_the_package_of_files():
    assert without_files("import server.application, server.serving").returncode == 0
