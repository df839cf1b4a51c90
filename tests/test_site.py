"""The site: every page is in its navigation, it builds without a warning, and it needs no other host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from docs import api_examples, api_page, conf
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


def test_the_service_answers_what_the_examples_of_the_api_show(tmp_path: Path):
    """`make api-examples` renews them."""
    with serving(tmp_path) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        for shown, found in api_examples.play(http):
            assert api_examples.agree(shown, found), f"{shown}\n\nThe service answers:\n\n{found}"


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
