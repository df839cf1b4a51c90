"""Every code block of the READMEs and of docs/ runs, against one service that is emptied before each page.

A block that cannot run, or that another test runs, is named in a table below with the reason. Two things keep
the tables true: a block in no table runs, and an entry of a table without its block fails.
"""

from __future__ import annotations

import doctest
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from code_blocks import COMMAND_S, ROOT, Block, blocks_of, pages, run_python, run_session
from service_process import serving
from shortlist_client import Client
from shortlist_personalizer.personalizer_command import make

pytestmark = pytest.mark.rest

# Pages that speak of a client without making one: it is given to them, with the address as ``url``.
GIVEN_A_CLIENT = {"docs/clients.md"}

# By page and first line: why nobody runs it.
NOT_RUN = {
    ("README.md", "$ make serve"): "installs, and serves until it is stopped",
    ("docs/quick-start.md", "$ make serve"): "installs, and serves until it is stopped",
    ("docs/console.md", "$ make serve"): "installs, and serves until it is stopped",
    ("docs/tour.md", "$ git clone … shortlist && cd shortlist"): "clones and installs",
    (
        "docs/tour.md",
        '   """Greedy: the arms of largest estimate. Nothing is explored."""',
    ): "is a file of a change that the reader makes",
    (
        "docs/tour.md",
        "       note: Annotated[str, Field(max_length=200)] | None = None",
    ): "is a line of a change that the reader makes",
    ("algorithms/README.md", "$ pip install ./algorithms"): "see tests/test_distributions.py",
    ("docs/operations.md", "$ docker build -t shortlist:3.0.0 ."): "needs Docker; see tests/test_deploy.py",
    (
        "docs/operations.md",
        "$ kubectl create secret generic shortlist --from-literal redis-url=rediss://… --from-file api-keys",
    ): "needs Kubernetes; see tests/test_chart.py",
    (
        "docs/streams.md",
        "$ shortlist ingest --from kafka://one:9092,two:9092/rewards?group=shop --metrics 127.0.0.1:9108",
    ): "needs a broker; see plugins/streams/tests/test_ingest.py",
    (
        "docs/streams.md",
        (
            "$ SHORTLIST_API_KEYS=… SHORTLIST_REDIS_PASSWORD=… SHORTLIST_INGEST_KEY=… "
            "docker compose --profile kafka up"
        ),
    ): "needs Docker; see tests/test_deploy.py",
    (
        "docs/lake.md",
        'names = spark.sparkContext.parallelize(lake.files("rewards"))',
    ): "needs Spark, and Java",
    (
        "docs/security.md",
        "$ shortlist key shop --scopes choose,reward",
    ): "serves others, by a name of its own",
}

# By page and first line: which test runs it.
RUN_BY = {
    (
        "docs/recipes/moving.md",
        "$ shortlist import items items.csv --encode",
    ): "plugins/evaluation/tests/test_logs_of_others.py",
    (
        "docs/recipes/in-a-page.md",
        'import { Client, RewardSender } from "@shortlist/client";',
    ): "tests/clients/test_typescript_client.py",
    (
        "docs/files.md",
        "$ shortlist import films items.csv --id sku --features 'emb_*' --dry-run",
    ): "tests/clients/test_awkward_files.py",
    (
        "docs/files.md",
        (
            "$ shortlist import --history home clicks.csv --key-column user_id --arm-column sku "
            "--value-column clicked --at-column ts"
        ),
    ): "tests/clients/test_history_files.py",
    (
        "docs/files.md",
        (
            "$ shortlist import --history home orders.csv --event-column order --key-column customer "
            "--arm-column sku --value-column price"
        ),
    ): "tests/clients/test_history_files.py",
    (
        "docs/files.md",
        (
            "$ shortlist embed --history clicks.csv --catalogue films-2 --from films --key-column user_id "
            "--arm-column sku --dry-run"
        ),
    ): "plugins/embeddings/tests/test_embed_command.py",
    (
        "docs/files.md",
        "$ shortlist import shop items.csv --id sku --encode",
    ): "tests/clients/test_encoded_files.py",
    (
        "clients/typescript/README.md",
        'import { Client, RewardSender } from "@shortlist/client";',
    ): "tests/clients/test_typescript_client.py",
    ("README.md", "$ URL=${URL:-http://127.0.0.1:8080}"): "tests/examples/test_quickstart.py",
    (
        "README.md",
        (
            "$ shortlist begin window --items items.csv --id sku --history clicks.csv --key user --arm sku "
            "--value bought --dry-run"
        ),
    ): "plugins/embeddings/tests/test_begin_command.py",
    (
        "docs/quick-start.md",
        (
            "$ shortlist begin window --items items.csv --id sku --history clicks.csv --key user --arm sku "
            "--value bought --dry-run"
        ),
    ): "plugins/embeddings/tests/test_begin_command.py",
    (
        "docs/personalizer.md",
        "$ shortlist personalizer init personalizer",
    ): "plugins/personalizer/tests/test_personalizer.py",
    ("docs/lake.md", "import duckdb"): "tests/processes/test_lake_page.py",
    ("docs/lake.md", "alien 0.5"): "tests/processes/test_lake_page.py",
    ("docs/lake.md", "from functools import reduce"): "tests/processes/test_lake_page.py",
    ("docs/lake.md", "{'_global': 2000}"): "tests/processes/test_lake_page.py",
    (
        "docs/measuring.md",
        "$ shortlist export log home --out log.ndjson --url $URL",
    ): "plugins/evaluation/tests/test_evaluate_command.py",
}


def films(client: Client) -> None:
    client.put_catalogue("films", dim=3)
    client.upsert_arms("films", [[0.9, 0.1, 0.3], [0.1, 0.9, 0.4]], ids=["alien", "amelie"])


def home(client: Client) -> None:
    films(client)
    client.put_bandit("home", catalogue="films", policy="sub_ts", scope="per_key")


def logged(client: Client) -> None:
    """A bandit with a holdout whose decisions are logged: people like one of its films, and it finds out."""
    films(client)
    client.put_bandit(
        "home",
        catalogue="films",
        policy="softmax",
        temperature=0.1,
        reward={"min": 0.0, "max": 1.0},
        holdout={"share": 0.1},
        log={},
    )
    rng = random.Random(1)
    for start in range(0, 2_000, 500):
        choices = client.choose_batch("home", [{"seed": seed} for seed in range(start, start + 500)]).results
        likes = {"alien": 0.5, "amelie": 0.05}
        rewards = [
            {"decision": choice.decision, "value": float(rng.random() < likes[choice.arms[0].id])}
            for choice in choices
        ]
        client.reward_batch(rewards, wait=True)


def exported(client: Client) -> None:
    """The same, a moment ago: what is just decided is exported by the next run."""
    logged(client)
    time.sleep(2.5)


def moved(client: Client) -> None:
    """A bandit with a log and one reward, and another one like it for its learners."""
    films(client)
    for name in ("home", "copy"):
        client.put_bandit(name, catalogue="films", policy="sub_ts", scope="per_key", log={})
    client.reward(client.choose("home", key="user-42").decision, wait=True)


def shop(client: Client) -> None:
    client.put_catalogue("articles", dim=2)
    bowl = {"in_stock": True, "languages": ["de", "en"], "price": 15, "maker": "oak"}
    client.upsert_arms(
        "articles", [[1, 0], [0, 1]], ids=["bowl", "campaign"], metadata=[bowl, {"campaign": 7}]
    )
    client.put_bandit("shop", catalogue="articles", policy="sub_ts")


def personalizer(client: Client) -> None:
    """What `shortlist personalizer init personalizer` makes."""
    make(client, "personalizer")


# What is there before a page begins, for pages that do not make it themselves.
FOUND_BY: dict[str, Callable[[Client], None]] = {
    "clients/files/README.md": films,
    "clients/python/README.md": home,
    "docs/changing.md": home,
    "docs/context.md": films,
    "docs/files.md": moved,
    "docs/explaining.md": logged,
    "docs/filters.md": shop,
    "docs/lake.md": exported,
    "docs/measuring.md": logged,
    "docs/personalizer.md": personalizer,
    "docs/quotas.md": shop,
}


LISTED = NOT_RUN | RUN_BY
BLOCKS = {page: blocks for page in pages() if (blocks := blocks_of(page))}
TO_RUN = {
    page: [block for block in blocks if (page, block.title) not in LISTED] for page, blocks in BLOCKS.items()
}


def pages_with(language: str) -> list[str]:
    return [page for page, blocks in TO_RUN.items() if any(block.language == language for block in blocks)]


def in_languages(page: str, *languages: str) -> list[Block]:
    return [block for block in TO_RUN[page] if block.language in languages]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("pages")) as service:
        yield service.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """Of a service that holds nothing."""
    with Client(url) as client:
        for bandit in list(client.bandits()):
            client.delete_bandit(bandit.id)
        for catalogue in sorted(client.catalogues(), key=lambda each: each.follows is None):
            client.delete_catalogue(catalogue.id)
        for campaign in list(client.slates()):
            client.delete_slates(campaign.id)
        yield client


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs_and_prints_what_it_shows(
    page: str, url: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    FOUND_BY.get(page, lambda _: None)(client)
    monkeypatch.chdir(tmp_path)  # pages write files
    given = {"client": client, "url": url} if page in GIVEN_A_CLIENT else {}
    names = run_python(in_languages(page, "python", "text"), url, given)
    if isinstance(own := names.get("client"), Client):
        own.close()


# These start a command every second or two; what the commands do has tests of its own.
LONG_SESSIONS = {"docs/explaining.md", "docs/files.md", "docs/lake.md", "docs/measuring.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page in LONG_SESSIONS else [])
        for page in pages_with("console")
    ],
)
def test_the_sessions_of_a_page_run_and_answer_what_it_shows(
    page: str, url: str, client: Client, tmp_path: Path
):
    FOUND_BY.get(page, lambda _: None)(client)
    run_session(in_languages(page, "console"), url, tmp_path)


@pytest.mark.parametrize("page", pages_with("pycon"))
def test_the_examples_of_a_page_are_true(page: str):
    runner, parser, names = doctest.DocTestRunner(), doctest.DocTestParser(), dict[str, Any]()
    for block in in_languages(page, "pycon"):
        example = parser.get_doctest(block.text, names, page, page, block.line)
        assert example.examples
        assert not runner.run(example, clear_globs=False).failed
        names = example.globs


def test_every_block_is_run_or_listed():
    known = {"python", "text", "console", "pycon"}
    left = [
        f"{block.page}:{block.line} {block.language or 'without a language'}"
        for blocks in TO_RUN.values()
        for block in blocks
        if block.language not in known
    ]
    assert left == []


def test_every_listed_block_is_there():
    assert set(LISTED) <= {(page, block.title) for page, blocks in BLOCKS.items() for block in blocks}
    assert all((ROOT / test).exists() for test in RUN_BY.values())


@pytest.mark.slow
def test_the_job_of_new_embeddings_runs_and_can_be_repeated(url: str, client: Client, tmp_path: Path):
    """As cron runs it: each part is a script with the catalogues of last week and of this one."""
    _, _, job = (ROOT / "docs/recipes/new-embeddings.md").read_text().partition("\n    # Monday: ")
    lines = [line.removeprefix("    ") for line in job.partition("\n\n")[0].splitlines()[1:]]
    tuesday = next(place for place, line in enumerate(lines) if line.startswith("# Tuesday: "))
    rng = np.random.default_rng(1)
    features, ids = rng.normal(size=(50, 10)), [f"film-{number}" for number in range(50)]
    client.put_catalogue("films-w30", dim=10)
    client.upsert_arms("films-w30", features, ids=ids)
    for name in ("home", "similar", "mail"):
        client.put_bandit(name, catalogue="films-w30", policy="sub_ts")
        client.reward(client.choose(name).decision, wait=True)
    np.save(tmp_path / "embeddings.npy", features @ np.linalg.qr(rng.normal(size=(10, 10)))[0])
    (tmp_path / "embeddings.ids").write_text("\n".join(ids) + "\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def ran(script: list[str]) -> None:
        done = subprocess.run(
            ["sh", "-c", "\n".join(script), "job", "films-w30", "films-w31"],
            cwd=tmp_path,
            env=os.environ | {"SHORTLIST_URL": url, "SHORTLIST_KEY": "none", "PATH": path},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "stays with" not in done.stdout

    for _ in range(2):
        ran(lines[:tuesday])
        assert {bandit.catalogue for bandit in client.bandits()} == {"films-w31"}
        assert {catalogue.size for catalogue in client.catalogues()} == {50}
    ran(lines[tuesday:])
    assert [each.id for each in client.catalogues()] == ["films-w31"]


# The checks themselves --------------------------------------------------------------------------------


def block(language: str, text: str) -> Block:
    return Block("page.md", 3, language, text)


def test_python_that_prints_something_else_is_noticed(url: str):
    shown = [block("python", "print(1 + 1)\n"), block("text", "2\n")]
    run_python(shown, url, {})
    with pytest.raises(AssertionError, match=r"page.md:3 shows otherwise"):
        run_python([shown[0], block("text", "3\n")], url, {})


def test_a_session_that_fails_or_answers_something_else_is_noticed(url: str, tmp_path: Path):
    run_session([block("console", "$ X=1\n$ echo '{\n  $X}' $X\n{\n  $X} 1\n")], url, tmp_path)
    run_session([block("console", '$ curl -s $URL/healthz\n{"status":…}\n')], url, tmp_path)
    for wrong in ("$ false\n", "$ curl -s $URL/v1/bandits/none\n", "$ echo one\ntwo\n"):
        with pytest.raises(AssertionError, match=r"page.md:3"):
            run_session([block("console", wrong)], url, tmp_path)
