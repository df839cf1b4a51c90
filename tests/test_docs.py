"""The documents say what the code does: settings, limits, algorithms and commands are compared with it."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

from pydantic_settings import BaseSettings

import app
import shortlist_campaigns
import shortlist_embeddings
import shortlist_evaluation
import shortlist_milvus
from app.platform.settings import Settings
from selection import targets
from server import cli
from shortlist_campaigns.campaign_settings import CampaignSettings
from shortlist_personalizer.personalizer_settings import PersonalizerSettings

ROOT = Path(__file__).parents[1]
MOST_ELSEWHERE = 2  # promises that no quick test holds: those of the lake
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("algorithms/*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("load_tests/*.md"),
        *ROOT.glob("clients/*/*.md"),
        *ROOT.glob("plugins/*/*.md"),
    }
)


def settings_table(settings: type[BaseSettings]) -> str:
    rows = ["| variable | default | meaning | change it when |", "|---|---|---|---|"]
    for name, field in settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        assert isinstance(field.json_schema_extra, dict), f"{name} has no reason to change it"
        when = field.json_schema_extra["when"]
        rows.append(f"| `SHORTLIST_{name.upper()}` | {default} | {field.description} | {when} |")
    return "\n".join(rows)


def test_every_setting_is_documented_as_it_is() -> None:
    for settings in (Settings, CampaignSettings, PersonalizerSettings):
        assert f"{settings_table(settings)}\n" in (ROOT / "docs/settings.md").read_text()


# What a request may ask is checked wherever it is read: so every module of the service is looked through.
HOMES = [
    import_module(module.name)
    for package in (app, shortlist_campaigns, shortlist_embeddings, shortlist_evaluation, shortlist_milvus)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
NO_LIMITS = {
    "MAX_DOCUMENT_BYTES": "what is read of a page at a time",
    "MAX_ENTRIES": "what a column of a filter holds in one form",
    "MAX_ERRORS": "how many errors of a body are told",
    "MAX_WEIGHT_SHARE": "when an evaluation warns",
}


def limits() -> list[tuple[str, str]]:
    rows = re.findall(
        r"^\| [^|]+ \| ([^|]+) \| `(\w+)` \|$", (ROOT / "docs/limits.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 12
    return rows


def test_every_limit_is_documented_as_it_is() -> None:
    for text, constant in limits():
        (value,) = {vars(home)[constant] for home in HOMES if constant in vars(home)}
        assert re.sub(r"[^0-9].*$", "", text.replace(",", "")) == str(int(value)), constant


def test_every_limit_is_documented() -> None:
    documented = {constant for _, constant in limits()}
    checked = {name for home in HOMES for name in vars(home) if name.startswith("MAX_")}
    assert checked - documented == NO_LIMITS.keys()


def test_every_command_that_pages_name_exists() -> None:
    commands = set(
        re.findall(
            r"`shortlist ([\w-]+)",
            "".join((ROOT / page).read_text() for page in ("README.md", "docs/commands.md")),
        )
    )
    parser = cli.command_parser()
    # private: of argparse, which lists commands nowhere else
    (choices,) = [action.choices for action in parser._subparsers._group_actions]  # type: ignore[union-attr]
    assert commands <= set(choices)
    assert commands


def test_links_between_documents_lead_somewhere() -> None:
    links = [
        (document, target)
        for document in PAGES
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text())
        if "://" not in target
    ]
    assert len(links) > 300
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(page))
    return {words.replace(" ", "-") for words in kept}


def test_links_to_headings_lead_to_one() -> None:
    links = [
        (document, document.parent / target if target else document, anchor)
        for document in PAGES
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text())
    ]
    assert len(links) > 100
    assert [f"{at.name}: {page.name}#{name}" for at, page, name in links if name not in anchors(page)] == []


def named_tests(text: str) -> list[str]:
    """Paths of tests in a text, each with the test that it names, if any."""
    return re.findall(r"`((?:algorithms/|plugins/\w+/)?tests/[\w/]+(?:\.py)?(?:::\w+)?)`", text)


def promises() -> list[str]:
    """The headings of the third level of the guarantees, each with what stands below it."""
    text = (ROOT / "docs/guarantees.md").read_text()
    return [part.partition("\n## ")[0] for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]]


def first_tests() -> list[tuple[str, str]]:
    """Of each promise the first test that holds it, and the target that runs it."""
    return [(test, target or "make test") for promise in promises() for test, target in _first_test(promise)]


def _first_test(promise: str) -> list[tuple[str, str]]:
    held = " ".join(promise.partition("\nHeld by")[2].split())
    return re.findall(r"^`(\S+::\w+)`(?: \(`(make test[a-z-]+)`\))?", held)


def test_every_promise_has_a_first_test_that_its_target_runs() -> None:
    assert [promise for promise in promises() if not _first_test(promise)] == []
    for test, target in first_tests():
        path, _, function = test.partition("::")
        assert dict(targets((ROOT / path).read_text())).get(function) == target, test


def test_nearly_every_promise_is_tested_where_everybody_waits() -> None:
    elsewhere = [test for test, target in first_tests() if target != "make test"]
    assert len(elsewhere) <= MOST_ELSEWHERE, elsewhere


def is_there(named: str) -> bool:
    path, _, function = named.partition("::")
    return (ROOT / path).exists() and bool(
        not function or re.search(rf"^(async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE)
    )


def test_every_test_that_a_page_names_exists() -> None:
    named = {test for page in ROOT.glob("docs/**/*.md") for test in named_tests(page.read_text())}
    assert named
    assert [test for test in sorted(named) if not is_there(test)] == []


def code_of_terms() -> list[tuple[str, str]]:
    """Every path in the last column of the glossary, with its term."""
    rows = re.findall(
        r"^\| ([^|]+) \|.*\| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE
    )
    return [(term, path) for term, cell in rows for path in re.findall(r"`([^`]+)`", cell)]


def test_the_code_of_a_term_is_where_the_glossary_says() -> None:
    assert [(term, path) for term, path in code_of_terms() if not (ROOT / path).exists()] == []


def test_every_file_that_the_page_of_a_plugin_names_exists() -> None:
    for page in ROOT.glob("plugins/*/README.md"):
        (package,) = page.parent.glob("shortlist_*/__init__.py")
        named = re.findall(r"`([\w-]+\.(?:py|js))`", page.read_text())
        assert [name for name in named if not (package.parent / name).exists()] == [], page


FOLDERS = (
    "algorithms", "app", "clients", "deploy", "docs", "examples", "load_tests", "mutation_tests", "plugins",
    "server", "studies", "tests", "workers",
)  # fmt: skip


def test_every_path_that_a_page_names_exists() -> None:
    named = {
        path
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for path in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+)`", page.read_text())
    }
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
