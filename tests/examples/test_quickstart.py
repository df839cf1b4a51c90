"""The session on the first screen of the README is what happens."""

import os
import re
import subprocess
from pathlib import Path

from examples.service import temporary_service
from waiting import wait_until_sync

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "quickstart.sh"
# What differs from run to run, or says more than a first screen should.
SHORTENED = (
    (r'("decision":")[^"]{12}[^"]*"', r'\1…"'),
    (r'("index":){[^}]*}', r"\1{…}"),
    (r"(\d\.\d{4})\d{3,}", r"\1…"),
)


def session() -> str:
    """Commands and answers, as on a terminal."""
    commands = SCRIPT.read_text().splitlines()
    with temporary_service() as server:
        run = subprocess.run(
            ["bash", "-euv", str(SCRIPT)],
            env={"PATH": os.environ["PATH"], "URL": server.url},  # functions in it would be printed too
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=True,
        )
    text = run.stdout
    for pattern, short in SHORTENED:
        text = re.sub(pattern, short, text)
    return "\n".join(
        f"$ {line}" if line in commands and not line.startswith((" ", "}")) else line
        for line in text.splitlines()
    )


def test_the_readme_shows_the_python_session_and_it_runs() -> None:
    readme, script = (ROOT / "README.md").read_text(), (ROOT / "examples/quickstart.py").read_text()
    shown = re.findall(r"<!-- python: examples/quickstart.py -->\n```python\n(.*?)```", readme, re.DOTALL)
    assert shown == [script]
    with temporary_service() as server:
        url = server.url
        exec(script.replace("http://127.0.0.1:8080", url), found := {})
        with found["client"] as client:
            wait_until_sync(lambda: client.get_learner("beside").observations, what="it is applied")
            assert client.report("beside").agreement.decisions == 1
            assert client.get_bandit("beside").holdout["share"] == 0.1
    assert [arm.id for arm in found["choice"].arms] == ["toaster", "lamp"]


def test_the_readme_shows_it() -> None:
    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(
        r"<!-- session: examples/quickstart.sh -->\n```console\n(.*?)\n```\n<!-- /session -->",
        readme,
        re.DOTALL,
    )
    assert shown == session()
