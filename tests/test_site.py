"""The site: every page is in its navigation, it builds without a warning, and it needs no other host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from docs import api_examples, api_page, conf
from docs.api_examples import Example
from service_process import serving

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
MOST_API_BYTES = 300_000  # of a page of the API


def test_every_page_is_in_the_navigation_once():
    listed = [page for own in conf.navigation().values() for page in own]
    assert sorted(listed) == conf.pages()
    found = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert found - {conf.HOME} <= set(listed)


def test_the_pages_of_the_api_have_every_call_and_every_field_once():
    document, pages = api_page.document(), api_page.pages()
    assert {path.stem for path in ROOT.glob("docs/api/*.md")} == pages.keys()
    text = "\n".join(pages.values())
    assert len(re.findall(r"^## `\w+ .+`$", text, re.MULTILINE)) == sum(map(len, document["paths"].values()))
    linked, there = (
        re.findall(r"\]\(#([\w-]+)\)", text),
        re.findall(r"^\((schema-.+)\)=$", text, re.MULTILINE),
    )
    assert set(linked) <= set(there)
    assert len(there) == len(set(there)) == len(document["components"]["schemas"])
    calls = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
    assert set(re.findall(r"^## `(\w+) (.+)`$", text, re.MULTILINE)) == calls
    for name, schema in document["components"]["schemas"].items():
        _, _, own = text.partition(f"({api_page.anchor(name)})=\n")
        own = re.split(r"\n\(schema-|\n## ", own)[0]
        assert set(re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE)) == set(schema.get("properties", ())), (
            name
        )


def without_examples(calls: Mapping[str, Sequence[Example]]) -> list[str]:
    """Calls that lack an example of an answer, or of an error where they have any of their own."""
    never_fail = {"GET /", "GET /healthz", "GET /readyz", "GET /metrics"}
    return [
        call
        for call, examples in calls.items()
        if not any(200 <= example.status < 300 for example in examples)
        or not (call in never_fail or any(400 <= example.status < 500 for example in examples))
    ]


def test_every_call_has_an_example_of_an_answer_and_of_an_error():
    calls = api_examples.by_call(api_page.document()["paths"])
    assert without_examples(calls) == []
    choose = "POST /v1/bandits/{bandit}/choose"
    good = [example for example in calls[choose] if example.status == 200]
    bad = [example for example in calls[choose] if example.status >= 400]
    for some in ([], good, bad):
        assert without_examples({choose: some}) == [choose]


def test_the_service_answers_what_the_examples_of_the_api_show(tmp_path: Path):
    """`make api-examples` renews them."""
    with serving(tmp_path) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        for shown, found in api_examples.play(http):
            assert api_examples.agree(shown, found), f"{shown}\n\nThe service answers:\n\n{found}"


def test_an_example_that_is_no_longer_true_is_noticed():
    shown = Example("GET", "/", {}, "", 200, '{"size": 3, "radius": 0.92195, "draws": ["a"]}')
    close = replace(shown, answer='{"size": 3, "radius": 0.92196, "draws": ["a"]}')
    assert api_examples.agree(shown, close)
    for answer in ('{"size": 4', '{"radius": 0.5', '{"draws": ["a", "b"]', '{"size": true', '{"more": 1'):
        wrong = {**json.loads(shown.answer), **json.loads(answer + "}")}
        assert not api_examples.agree(shown, replace(shown, answer=json.dumps(wrong)))
    assert not api_examples.agree(shown, replace(shown, status=201))


def test_the_versions_of_the_site_are_listed_the_newest_first(tmp_path: Path):
    for name in ("1.9.0", "1.10.0", "0.1.0", "other"):
        (tmp_path / name).mkdir()
    conf.list_versions(tmp_path)
    links = re.findall(r'href="(.+?)/index.html"', (tmp_path / "index.html").read_text())
    assert links == ["1.10.0", "1.9.0", "0.1.0"]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", f"{source}/docs"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(source), str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_it_builds_and_loads_nothing_from_other_hosts(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    site = tmp_path / conf.release
    built = build(ROOT, site)
    assert built.returncode == 0, built.stderr
    assert f'href="{conf.release}/index.html"' in (tmp_path / "index.html").read_text()
    made = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    large = {path.name: path.stat().st_size for path in site.glob("docs/api/*.html")}
    assert max(large.values()) < MOST_API_BYTES, large
    assert {conf.HOME, "index", *conf.pages()} <= made
    for path in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]:
        text = path.read_text()
        foreign = re.findall(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>", text)
        foreign += re.findall(r"(?:url\(|@import )[\s\"']*(?:https?:)?//", text)
        assert foreign == [], path


@pytest.mark.slow
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    docs = tmp_path / "source/docs"
    docs.mkdir(parents=True)
    shutil.copy(ROOT / "docs/conf.py", docs)
    shutil.copy(ROOT / "docs/versions.html", docs)
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "source")
    (docs / "page.md").write_text("# A page\n\n## There\n")
    good = ("page.md", "page.md#there", "conf.py")
    broken = ("page.md#nowhere", "nothing.md", "../app/nothing.py", "#nowhere")
    (docs / "index.md").write_text(
        "# Home\n\n" + "\n\n".join(f"[text]({target})" for target in good + broken)
    )
    found = build(tmp_path / "source", tmp_path / "site")
    assert found.returncode != 0
    assert len(re.findall(r"index.md:\d+: WARNING: .*myst.xref_missing", found.stderr)) == len(broken)
