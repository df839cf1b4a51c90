"""How `make docs` builds the site: Sphinx, with the pages of docs/ and the READMEs as they are.

The source folder is the repository, so the links between pages are the same here as there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "README.md",
    "algorithms/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "clients/*/README.md",
    "plugins/*/README.md",
    "load_tests/README.md",
)
HOME = "docs/index"
API = "docs/api"

# The parts of the navigation: a title, and the pages as patterns. A page stands where it first fits.
PARTS = {
    "Start": ("docs/quick-start", "docs/console", "README"),
    "Recipes": ("docs/recipes/history", "docs/recipes/shadow", "docs/recipes/*"),
    "Guides": (
        "docs/features",
        "docs/context",
        "docs/filters",
        "docs/candidates",
        "docs/quotas",
        "docs/rewards",
        "docs/arm-effects",
        "docs/signals",
        "docs/changing",
        "docs/moving",
        "docs/measuring",
        "docs/explaining",
        "docs/scales",
        "docs/it-does-not-learn",
        "docs/slates",
        "docs/personalizer",
        "docs/agents",
        "docs/plugins",
        "plugins/*/README",
        "docs/sampling",
        "docs/glossary",
    ),
    "API and clients": (
        API,
        *(
            f"{API}/{area}"
            for area in ("catalogues", "bandits", "learners", "choices", "rewards", "quotas", "measuring")
        ),
        f"{API}/*",
        "docs/commands",
        "docs/clients",
        "docs/files",
        "clients/*/README",
    ),
    "Papers": ("algorithms/README", "docs/papers/README", "docs/papers/*"),
    "Operations": (
        "docs/operations",
        "docs/upgrading",
        "docs/releasing",
        "docs/guarantees",
        "docs/security",
        "docs/settings",
        "docs/limits",
        "docs/scale",
        "docs/milvus",
        "docs/streams",
        "docs/lake",
        "docs/metrics",
        "docs/measurements",
        "load_tests/README",
    ),
    "The project": (
        "docs/mini",
        "docs/reading-order",
        "docs/tour",
        "docs/architecture",
        "CONTRIBUTING",
        "CHANGELOG",
        "docs/mutants",
        "docs/decisions/*",
    ),
    "More": ("docs/*",),
}


def pages() -> list[str]:
    """Every page of the site but its home: paths in the repository, without their ending."""
    found = {path for pattern in SOURCES for path in ROOT.glob(pattern)}
    return sorted({path.relative_to(ROOT).with_suffix("").as_posix() for path in found} - {HOME})


def navigation() -> dict[str, list[str]]:
    """The pages of every part that has some, by its title."""
    left = pages()
    found: dict[str, list[str]] = {}
    for title, patterns in PARTS.items():
        for pattern in patterns:
            own = [page for page in left if PurePosixPath("/", page).match(f"/{pattern}")]
            found.setdefault(title, []).extend(own)
            left = [page for page in left if page not in own]
    return {title: own for title, own in found.items() if own}


def _entry(page: str) -> str:
    """The title of the README is that of the site, which stands above the navigation."""
    return f"Overview </{page}>" if page == "README" else f"/{page}"


def _contents() -> str:
    """The navigation as Sphinx reads it: one hidden table of contents for each part."""
    return "\n".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(map(_entry, own)) + "\n```"
        for title, own in navigation().items()
    )


def _add_what_is_generated(_: Sphinx, page: str, source: list[str]) -> None:
    """The navigation, and the calls of the service, are written when the site is built."""
    if page == HOME:
        source[0] = f"---\nhide-toc: true\n---\n{source[0]}{_contents()}"
    if page.startswith(f"{API}/"):
        sys.path.insert(0, str(ROOT))
        from docs import api_page  # noqa: PLC0415  # it loads the service

        about = source[0].partition("\n\nIts content is made ")[0]
        source[0] = f"{about}\n{api_page.pages()[page.removeprefix(f'{API}/')]}"


def _lead_to_home(app: Sphinx, error: Exception | None) -> None:
    """The top of the site leads to its home, and the folder above it to all versions that are there."""
    if error is None:
        folder = Path(app.outdir)
        refresh = f'<meta http-equiv="refresh" content="0; url={HOME}.html">'
        (folder / "index.html").write_text(f'{HEAD}{refresh}<a href="{HOME}.html">{project}</a>\n')
        if folder.name == release:
            list_versions(folder.parent)


def list_versions(site: Path) -> None:
    """Write the page of a site that leads to its versions, the newest first."""
    found = [path.name for path in site.iterdir() if re.fullmatch(r"\d+(\.\d+)+", path.name)]
    found.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    rows = "".join(f'<li><a href="{name}/index.html">{name}</a></li>\n' for name in found)
    (site / "index.html").write_text(f"{HEAD}<h1>{project}</h1>\n<ul>\n{rows}</ul>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _add_what_is_generated)
    app.connect("build-finished", _lead_to_home)
    return {"parallel_read_safe": True}


project = "Shortlist"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
STYLE = ":root{color-scheme:light dark}body{font:1.1rem/1.6 sans-serif;max-width:40rem;margin:4rem auto}"
HEAD = f'<!doctype html><meta charset="utf-8"><title>{project}</title><style>{STYLE}</style>\n'
extensions = ["myst_parser"]
root_doc = HOME
include_patterns = [f"{page}.md" for page in (HOME, *pages())]
# Folders that need not be looked into.
exclude_patterns = [
    ".*",
    "app",
    "build",
    "deploy",
    "dist",
    "examples",
    "server",
    "tests",
    "workers",
    "**/node_modules",
]

# Headings have the anchors that they have on pages that host repositories.
myst_heading_anchors = 6

# A session on a terminal may have a command over several lines, which the highlighter does not know.
suppress_warnings = ["misc.highlighting_failure"]

nitpicky = True

html_theme = "furo"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b62a4", "color-brand-content": "#0b62a4"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ff", "color-brand-content": "#7cc4ff"},
}
html_title = f"{project} {release}"
templates_path = ["."]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_use_index = False
