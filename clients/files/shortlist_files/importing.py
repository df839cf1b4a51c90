"""Files of arms into a catalogue, or of learners into a bandit.

All files are read and checked before anything is sent: a mistake in any row of any file changes nothing.
Arms are sent in order, some thousand in a request, each request all or nothing by blocks of a thousand. What
is there as it is stays untouched, so an import that was interrupted is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from shortlist_client.answers import Catalogue
from shortlist_client.client import Client
from shortlist_client.errors import NotFound
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import ArmRows, FileError
from shortlist_files.bad_rows import BadRows
from shortlist_files.cells import KINDS
from shortlist_files.learner_files import learners_of
from shortlist_files.proposals import Proposal, Statistics, propose
from shortlist_files.replacing import check_replaced
from shortlist_files.spellings import Spellings
from shortlist_files.table_arms import ImportOptions, TableArms, Taken
from shortlist_files.versions import check_version

REQUEST_BYTES = 1 << 22
BLOCK_BYTES = 1 << 22  # the service takes four times as many
HEAD_BYTES = 4
SHOWN_ARMS = 3


@dataclass(slots=True)
class _Checked:
    """What the rows came to. ``statistics``: of a catalogue that is to be made. ``ids``: their hashes."""

    bad: BadRows
    spellings: Spellings
    statistics: Statistics | None
    ids: list[NDArray[np.int64]] = field(default_factory=lambda: [np.empty(0, np.int64)])


def import_arms(
    client: Client,
    catalogue: str,
    files: Sequence[Path],
    options: ImportOptions | None = None,
    *,
    request_bytes: int = REQUEST_BYTES,
) -> list[str]:
    """Send the arms of files; lines that say what was done. Raises FileError, ShortlistError.

    ``request_bytes``: a request is sent once it has so many.
    """
    options = options or ImportOptions()
    check_version(client)
    found = _found(client, catalogue, options)
    taken = _taken(found, options)
    arms = TableArms(files, options, taken)
    arms.look()
    checked = _check(arms, options, makes=found is None and options.makes)
    spellings = checked.spellings.lines(is_tidy=options.tidy)
    if checked.bad.refusal is not None:
        statistics = checked.statistics
        proposed = _proposal(arms, statistics).lines() if statistics is not None and statistics.rows else ()
        for line in (*arms.notes, *spellings, *proposed):
            print(line, flush=True)
        raise checked.bad.refusal
    if not options.dry_run:
        checked.bad.write()
    ids = np.concatenate(checked.ids)
    if not len(ids):
        raise FileError(f"{files[0]}: there are no arms in it")
    lines = [*arms.notes, *checked.bad.lines(), *spellings, *_missing_lines(arms, options, taken)]
    if checked.statistics is not None:
        settings, told = _settings(arms, checked.statistics, options)
        lines += told
        if not options.dry_run:
            client.put_catalogue(catalogue, **settings)
    distinct = len(np.unique(ids))
    with closing(arms.rows()) as all_rows:
        if options.dry_run:
            documents = (line for rows in all_rows for line in _documents(rows))
            right = f"{counted(distinct, 'arm is', 'arms are')} right"
            return [*lines, *islice(documents, SHOWN_ARMS), f"dry run: {right}, nothing was sent"]
        if found is not None and not found.features and not options.replace_features:
            check_replaced(client, catalogue, all_rows)
    added = _send(client, catalogue, arms, len(ids), request_bytes)
    there, replaced = counted(distinct - added, "was there", "were there"), len(ids) - distinct
    again = counted(replaced, "row was replaced by a later one", "rows were replaced by later ones")
    done = f"{counted(distinct, 'arm', 'arms')}: {added:,} added, {there}"
    return [*lines, done + f"; {again}" * (replaced > 0)]


def _send(client: Client, catalogue: str, arms: TableArms, count: int, request_bytes: int) -> int:
    """Send all arms; how many are new."""
    added = 0
    with meter("sent", count, "arms") as advance, closing(arms.rows()) as all_rows:
        for number, body in _bodies(all_rows, request_bytes):
            added += client.import_blocks(catalogue, body).added
            advance(number)
    return added


@dataclass(frozen=True, slots=True)
class ProposedCatalogue:
    """``settings``: of the catalogue that ``import_arms`` would make of some tables; ``lines`` say so.

    ``arms``: what it would send.
    """

    settings: Mapping[str, Any]
    lines: Sequence[str]
    arms: TableArms


def propose_tables(files: Sequence[Path], options: ImportOptions) -> ProposedCatalogue:
    """What an import with ``encode`` would make of tables, without a service. Raises FileError."""
    taken = _taken(None, options)
    arms = TableArms(files, options, taken)
    arms.look()
    checked = _check(arms, options, makes=True)
    if checked.bad.refusal is not None:
        raise checked.bad.refusal
    if not options.dry_run:
        checked.bad.write()
    if checked.statistics is None or not any(map(len, checked.ids)):
        raise FileError(f"{files[0]}: there are no arms in it")
    settings, lines = _settings(arms, checked.statistics, options)
    # For people: without the JSON.
    told = [*arms.notes, *checked.bad.lines(), *_missing_lines(arms, options, taken)]
    return ProposedCatalogue(settings, [*told, *lines[:-1]], arms)


def _check(arms: TableArms, options: ImportOptions, *, makes: bool) -> _Checked:
    """Check and count all rows. ``makes``: a catalogue is to be made of them. Raises FileError."""
    bad = BadRows(options.skip_bad, arms.rows_total)
    checked = _Checked(bad, Spellings(arms.declared_values()), Statistics() if makes else None)
    for path, row in arms.side_bad:
        bad.note(path, [row])
    # a generator that an error leaves behind is closed at once, and its file with it
    with meter("checked", arms.rows_total, "arms") as advance, closing(arms.rows()) as all_rows:
        for rows in all_rows:
            bad.note(rows.path, rows.bad)
            checked.ids.append(np.fromiter(map(hash, rows.ids), np.int64, len(rows)))
            checked.spellings.add(rows.metadata)
            if checked.statistics is not None and options.encode:
                pairs = zip(rows.metadata, rows.tags, strict=True)
                checked.statistics.add([{**each, "tags": tags} if tags else each for each, tags in pairs])
            if checked.statistics is not None and options.reduce and rows.features is not None:
                checked.statistics.add_products(rows.features)
            advance(len(rows) + len(rows.bad))
    checked.spellings.settle()
    if options.tidy:
        arms.spellings = checked.spellings
        if checked.statistics is not None:
            checked.statistics.join(checked.spellings)
    return checked


def _missing_lines(arms: TableArms, options: ImportOptions, taken: Taken) -> Iterator[str]:
    """What arms are without: bad cells, rows of the second table, and fields of the catalogue."""
    for name, numbers in arms.taken_for_missing.items():
        were = counted(len(numbers), "bad cell is", "bad cells are")
        yield f"{name}: {were} taken for missing, the first in row {numbers[0]:,}"
    if arms.without_metadata:
        have = counted(arms.without_metadata, "arm has", "arms have")
        yield f"{have} no row in {options.metadata}"
    names = arms.names()
    for declared in taken.fields if "metadata" not in names else ():
        if declared not in names and not any(declared.startswith(f"{name}.") for name in names):
            yield f"no column has the name of the field {declared} of the catalogue: arms are without it"


def _found(client: Client, catalogue: str, options: ImportOptions) -> Catalogue | None:
    """The catalogue; None if it is to be made. Raises FileError."""
    try:
        found = client.get_catalogue(catalogue)
    except NotFound:
        if options.makes or options.dry_run:
            return None
        message = f"there is no catalogue {catalogue}: make it first, by PUT /v1/catalogues/{catalogue}"
        raise FileError(f"{message}, or from the columns of a table with --encode") from None
    declared = {} if found.features is None else asdict(found.features)
    if (options.encode and not declared.get("fields")) or (options.reduce and not declared.get("embedding")):
        flag = "--encode" if options.encode else "--reduce"
        raise FileError(
            f"{flag}: the catalogue {catalogue} is there already and is made otherwise: use a new name"
        )
    return found


def _taken(found: Catalogue | None, options: ImportOptions) -> Taken:
    if found is None:
        return Taken(0 if options.reduce is None and options.features is None else None)
    if not found.features:
        return Taken(found.dim)
    declared = asdict(found.features)
    embedding = declared["embedding"]
    fields = {each["name"]: each for each in declared["fields"] or ()}
    return Taken(0 if embedding is None else int(embedding["dim"]), fields)


def _settings(
    arms: TableArms, statistics: Statistics, options: ImportOptions
) -> tuple[dict[str, Any], list[str]]:
    """The settings of the catalogue that is to be made, which the columns follow; and lines that say so."""
    features, lines, display, dim = dict[str, Any](), list[str](), {}, arms.features.dim
    if options.encode:
        proposal = _proposal(arms, statistics)
        if not proposal.fields and options.reduce is None and not dim:
            told = "; ".join(f"{name}: {why}" for name, why in proposal.left_out.items())
            none = f"no column makes a field ({told})" if told else "the table has no column but the ids"
            raise FileError(f"--encode: {none}: add one that says what items are, such as a kind or a price")
        lines += proposal.lines()
        display = dict(proposal.display)
        if proposal.fields:
            features["fields"] = list(proposal.fields)
        arms.declare({each["name"]: KINDS[each["kind"]] for each in proposal.fields})
    if dim:
        features["embedding"] = {"dim": dim}
    if options.reduce is not None:
        basis, share = statistics.principal(options.reduce, beside_fields="fields" in features)
        features["embedding"]["reduce"] = {"to": options.reduce, "basis": basis}
        lines.append(
            f"{options.reduce} principal components of {dim} numbers keep {share:.1%} of their squares"
        )
    return {"features": features, **({"display": display} if display else {})}, lines


def _proposal(arms: TableArms, statistics: Statistics) -> Proposal:
    return propose(statistics, {name: column.kind for name, column in arms.columns.items()})


def _documents(rows: ArmRows) -> Iterator[str]:
    """Arms as they are sent."""
    for place, name in enumerate(rows.ids):
        document: dict[str, Any] = {"id": name}
        if rows.features is not None:
            document["features"] = rows.features[place].tolist()
        parts = {"tags": rows.tags[place], "metadata": rows.metadata[place]}
        document |= {part: value for part, value in parts.items() if value}
        yield json.dumps(msgspec.to_builtins(document), ensure_ascii=False)


def _bodies(all_rows: Iterator[ArmRows], request_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Bodies of some blocks each, and how many arms they hold."""
    count, body = 0, bytearray()
    for rows in all_rows:
        for block in _blocks(rows):
            body += len(block).to_bytes(HEAD_BYTES, "little") + block
        count += len(rows)
        if len(body) >= request_bytes:
            yield count, bytes(body)
            count, body = 0, bytearray()
    if body:
        yield count, bytes(body)


def _blocks(rows: ArmRows) -> Iterator[bytes]:
    """The rows as a block; as several where they are long, or an id comes again: its last row counts."""
    texts = [msgspec.json.encode(each) if each else b"" for each in rows.metadata]
    width = 0 if rows.features is None else rows.features.itemsize * rows.features.shape[1]
    start, size, seen = 0, 0, set[str]()
    for place, name in enumerate(rows.ids):
        if name in seen or size > BLOCK_BYTES:
            yield _block(rows, texts, slice(start, place))
            start, size, seen = place, 0, set()
        seen.add(name)
        size += width + len(texts[place])
    if seen:
        yield _block(rows, texts, slice(start, len(rows)))


def _block(rows: ArmRows, texts: Sequence[bytes], some: slice) -> bytes:
    features = np.empty((len(rows), 0)) if rows.features is None else rows.features
    document: dict[str, object] = {
        "ids": rows.ids[some],
        "features": features[some].tobytes(),
        "dtype": features.dtype.str,
    }
    if any(rows.tags[some]):
        document["tags"] = rows.tags[some]
    if any(texts[some]):
        document["metadata"] = [text.decode() for text in texts[some]]
    return msgspec.msgpack.encode(document)


def import_learners(client: Client, bandit: str, files: Sequence[Path]) -> str:
    """Give the learners of all files to a bandit; a line that says what was done.

    Only a learner without rewards takes a state. Raises FileError, ShortlistError.
    """
    readers = [learners_of(path) for path in files]
    check_version(client)
    client.get_bandit(bandit)
    with meter("checked", None, "learners") as advance:
        count = 0
        for read in readers:
            for _ in read():
                count += 1
                advance(1)
    with meter("sent", count, "learners") as advance:
        for read in readers:
            for row in read():
                client.put_learner(bandit, row.key, state=row.state)
                advance(1)
    return f"{count:,} learners are as in the files"
