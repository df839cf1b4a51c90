"""The code blocks of a page, and how they are run: as a reader would, one after the other."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
# The address that pages name; the tests put that of their own service in its place.
SHOWN_URL = "http://127.0.0.1:8080"
COMMAND_S = 240.0  # of a busy machine
# curl fails where the service does, also in a session that does not ask for it with -f.
_CURL = """curl() {
  case " $* " in *" -sf "*) command curl "$@";; *) command curl --fail-with-body "$@";; esac
}
"""
_END = "--- end of a command, status "


class Block(NamedTuple):
    """A fenced block: its page from the top of the repository, its first line there, and what it says."""

    page: str
    line: int
    language: str
    text: str

    @property
    def title(self) -> str:
        """Its first line without a comment, by which lists name it."""
        return self.text.partition("\n")[0].partition("  #")[0].rstrip()


class Command(NamedTuple):
    """A command of a session on a terminal, and what it shows; None where a page leaves that out."""

    text: str
    shown: str | None


def pages() -> list[str]:
    """Every page that a reader finds."""
    patterns = (
        "*.md",
        "algorithms/*.md",
        "docs/**/*.md",
        "clients/**/*.md",
        "load_tests/*.md",
        "plugins/*/*.md",
    )
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if "node_modules" not in path.parts}
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    found = re.finditer(r"^( *)```([^\n`]*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    blocks = [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2].strip(), match[3]) for match in found
    ]
    assert len(re.findall("^ *```", text, re.MULTILINE)) == 2 * len(blocks), f"{page}: a block does not end"
    return blocks


def agrees(shown: str, found: str) -> bool:
    """Whether this is what a page shows; ``…`` stands for any text within a line.

    A page may break the lines of a JSON document as it likes.
    """
    shown, found = shown.strip(), found.strip()
    if found.startswith("{"):
        shown, found = re.sub(r"\s+", "", shown), re.sub(r"\s+", "", found)
    pattern = r"[^\n]*".join(re.escape(part) for part in shown.split("…"))
    return re.fullmatch(pattern, found) is not None


def run_python(blocks: list[Block], url: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Run the Python of a page in one namespace, and compare what it prints with the text blocks after it.

    Returns the names that are defined at the end. An error says where on the page it happened.
    """
    namespace = dict(names)
    printed = io.StringIO()
    for block in blocks:
        if block.language == "text":
            found = printed.getvalue()
            assert agrees(block.text, found), f"{block.page}:{block.line} shows otherwise:\n{found}"
        else:
            printed = io.StringIO()
            text = "\n" * block.line + block.text.replace(SHOWN_URL, url)
            with contextlib.redirect_stdout(printed):
                exec(compile(text, block.page, "exec"), namespace)
    return namespace


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a session. One goes on over further lines while a quotation in it is open."""
    lines = block.text.splitlines()
    assert lines[0].startswith("$ "), f"{block.page}:{block.line}: a session begins with a command"
    while lines:
        text = lines.pop(0).removeprefix("$ ")
        while not _is_whole(text):
            text += "\n" + lines.pop(0)
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        yield Command(text, "\n".join(shown) if shown else None)


def _is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.endswith("\\")


def run_session(blocks: list[Block], url: str, folder: Path) -> None:
    """Run the sessions of a page in one shell in ``folder``, and compare what each command writes with what
    is shown.

    A command whose output is left out must succeed; for curl that is a status below 400.
    """
    commands = [(block, command) for block in blocks for command in commands_of(block)]
    script = _CURL
    script += "".join(f'{command.text}\nstatus=$?; echo; echo "{_END}$status"\n' for _, command in commands)
    run = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
    )
    outputs = re.findall(rf"(.*?)\n{_END}(\d+)\n", run.stdout, re.DOTALL)
    assert len(outputs) == len(commands), run.stderr
    for (block, command), (output, status) in zip(commands, outputs, strict=True):
        where = f"{block.page}:{block.line}: {command.text}\n{output}{run.stderr}"
        assert command.shown is not None or status == "0", where
        assert command.shown is None or agrees(command.shown, output), where
