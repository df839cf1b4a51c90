"""Tables as people have them into a catalogue: look at the columns, check every row, then send."""

from __future__ import annotations

import csv
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist_client.answers import Catalogue
from shortlist_client.client import Client
from shortlist_client.phrases import counted
from shortlist_client.progress import meter
from shortlist_files.arm_rows import ArmRows, FileError
from shortlist_files.cells import KINDS
from shortlist_files.importing import block_bodies, catalogue_of, imported
from shortlist_files.proposals import NO_POPULARITY, Proposal, Statistics, propose, rounded
from shortlist_files.replacing import check_replaced
from shortlist_files.spellings import Spellings
from shortlist_files.table_arms import NAMES_SHOWN, TableArms, TableOptions, TableRows, Taken, shown
from shortlist_files.table_features import reduced
from shortlist_files.tables import BadRow
from shortlist_files.versions import check_version

SHOWN_ARMS = 3
BAD_COLUMNS = ("row", "field", "value", "reason")
MOST_VALUE_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How tables are imported.

    ``encode``    make the catalogue, with fields for the columns
    ``reduce``    make the catalogue, with so many principal components of the embeddings
    ``skip_bad``  how many bad rows may be left out, and written beside
    ``tidy``      join values that differ only in case or blanks
    ``replace_features``  as of ``import_arms``
    """

    table: TableOptions = field(default_factory=TableOptions)
    encode: bool = False
    reduce: int | None = None
    dry_run: bool = False
    skip_bad: int = 0
    replace_features: bool = False
    tidy: bool = False

    @property
    def makes(self) -> bool:
        """Whether a catalogue is made that is not there."""
        return self.encode or self.reduce is not None


@dataclass(slots=True)
class _Checked:
    """What the rows of tables came to. ``statistics``: of a catalogue that is to be made. ``ids``: hashes."""

    bad: BadRows
    spellings: Spellings
    statistics: Statistics | None
    ids: list[NDArray[np.int64]] = field(default_factory=list)


def import_tables(client: Client, catalogue: str, files: Sequence[Path], options: ImportOptions) -> list[str]:
    """Send the arms of tables; lines that say what was done. Raises FileError, ShortlistError."""
    check_version(client)
    found = _found(client, catalogue, options)
    taken = _taken(found, options)
    arms = TableArms(files, options.table, taken)
    arms.look()
    checked = _check(arms, options, makes=found is None and options.makes)
    statistics, bad, spellings = checked.statistics, checked.bad, checked.spellings
    if bad.refusal is not None:
        if told := _lines_of_refusal(arms, checked):
            print("\n".join(told), flush=True)
        raise bad.refusal
    if not options.dry_run:
        bad.write()
    count, distinct = sum(map(len, checked.ids)), len(np.unique(np.concatenate(checked.ids)))
    lines = [
        *arms.notes,
        *bad.lines(),
        *spellings.lines(is_tidy=options.tidy),
        *_missing_lines(arms, options),
        *_absent_lines(arms, taken),
    ]
    if not count:
        raise FileError(f"{arms.tables[0].path}: there are no arms in it")
    if statistics is not None:
        settings, told = _settings(arms, statistics, options)
        lines += told
        if not options.dry_run:
            client.put_catalogue(catalogue, **settings)
    if options.dry_run:
        return [
            *lines,
            *_first(arms),
            f"dry run: {counted(distinct, 'arm is', 'arms are')} right, nothing was sent",
        ]
    if found is not None and not found.features and not options.replace_features:
        with closing(arms.rows()) as all_rows:
            check_replaced(client, catalogue, map(_arm_rows, all_rows))
    basis = client.get_catalogue(catalogue, include="basis").basis if _is_reduced(found, options) else None
    with meter("sent", count, "arms") as advance:
        added = _send(client, catalogue, arms, None if basis is None else np.array(basis, "<f4"), advance)
    return [*lines, imported(distinct, added, count - distinct)]


@dataclass(frozen=True, slots=True)
class ProposedCatalogue:
    """``settings``: of the catalogue that ``import_tables`` would make of some tables; ``lines`` say so.

    ``arms``: what it would send.
    """

    settings: Mapping[str, Any]
    lines: Sequence[str]
    arms: TableArms


def propose_tables(files: Sequence[Path], options: ImportOptions) -> ProposedCatalogue:
    """What an import with ``encode`` would make of tables, without a service. Raises FileError."""
    arms = TableArms(files, options.table, _taken(None, options))
    arms.look()
    checked = _check(arms, options, makes=True)
    if checked.bad.refusal is not None:
        raise checked.bad.refusal
    if checked.statistics is None or not any(map(len, checked.ids)):
        raise FileError(f"{files[0]}: there are no arms in it")
    settings, lines = _settings(arms, checked.statistics, options)
    # For people: without the JSON, and history says how popular an item is.
    told = [line for line in lines[:-1] if line != NO_POPULARITY]
    return ProposedCatalogue(settings, [*arms.notes, *checked.bad.lines(), *told], arms)


def _check(arms: TableArms, options: ImportOptions, *, makes: bool) -> _Checked:
    """Check and count all rows. ``makes``: a catalogue is to be made of them. Raises FileError."""
    bad = BadRows(options.skip_bad)
    checked = _Checked(bad, Spellings(arms.declared_values()), Statistics() if makes else None)
    statistics = checked.statistics
    # a generator that an error leaves behind is closed at once, and its file with it
    with meter("checked", arms.rows_total, "arms") as advance, closing(arms.rows()) as all_rows:
        for rows in all_rows:
            bad.note(rows.path, rows.bad)
            checked.ids.append(np.fromiter(map(hash, rows.ids), np.int64, len(rows)))
            checked.spellings.add(rows.metadata)
            if statistics is not None and options.encode:
                documents = [
                    {**each, "tags": tags} if tags else each
                    for each, tags in zip(rows.metadata, rows.tags, strict=True)
                ]
                statistics.add(documents)
            if statistics is not None and options.reduce and rows.features is not None:
                statistics.add_products(rows.features)
            advance(len(rows) + len(rows.bad))
    checked.spellings.settle()
    if options.tidy:
        arms.spellings = checked.spellings
        if statistics is not None:
            statistics.join(checked.spellings)
    return checked


def _lines_of_refusal(arms: TableArms, checked: _Checked) -> list[str]:
    """What is shown before the error."""
    lines = [*arms.notes, *checked.spellings.lines(is_tidy=arms.spellings is not None)]
    if checked.statistics is not None and checked.statistics.rows:
        lines += _encode_lines(_proposal(arms, checked.statistics))
    return lines


def _missing_lines(arms: TableArms, options: ImportOptions) -> list[str]:
    lines = [
        f"{name}: {counted(cells.count, 'bad cell is', 'bad cells are')} taken for missing, "
        f"the first in row {cells.first:,}"
        for name, cells in arms.taken_for_missing.items()
    ]
    if arms.without_metadata:
        lines.append(
            f"{counted(arms.without_metadata, 'arm has', 'arms have')} no row in {options.table.metadata}"
        )
    return lines


def _absent_lines(arms: TableArms, taken: Taken) -> list[str]:
    """Which fields of the catalogue no column has, as where a column was given another name."""
    names = arms.names()
    if "metadata" in names:
        return []
    absent = [
        declared
        for declared in taken.fields
        if declared not in names and not any(declared.startswith(f"{name}.") for name in names)
    ]
    return [
        f"no column has the name of the field {name} of the catalogue: arms are without it" for name in absent
    ]


def _found(client: Client, catalogue: str, options: ImportOptions) -> Catalogue | None:
    """The catalogue; None if it is to be made. Raises FileError."""
    try:
        found = catalogue_of(client, catalogue)
    except FileError:
        if not (options.makes or options.dry_run):
            raise
        return None
    declared = {} if found.features is None else asdict(found.features)
    if (options.encode and not declared.get("fields")) or (options.reduce and not declared.get("embedding")):
        flag = "--encode" if options.encode else "--reduce"
        raise FileError(
            f"{flag}: the catalogue {catalogue} is there already and is made otherwise: use a new name"
        )
    return found


def _taken(found: Catalogue | None, options: ImportOptions) -> Taken:
    if found is None:
        has_features = options.reduce is not None or options.table.features is not None
        return Taken(None if has_features else 0)
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
    features, lines, display = dict[str, Any](), list[str](), {}
    if options.encode:
        proposal = _proposal(arms, statistics)
        if not proposal.fields and options.reduce is None and arms.dim == 0:
            told = "; ".join(f"{name}: {why}" for name, why in proposal.left_out.items())
            told = told or "the table has no column but the ids"
            raise FileError(f"--encode: {told}")
        lines += _encode_lines(proposal)
        display = dict(proposal.display)
        if proposal.fields:
            features["fields"] = list(proposal.fields)
        for each in proposal.fields:
            arms.declare(each["name"], KINDS[each["kind"]])
    if arms.dim:
        features["embedding"] = {"dim": arms.dim}
    if options.reduce is not None:
        basis, share = statistics.principal(options.reduce, beside_fields="fields" in features)
        features["embedding"]["reduce"] = {"to": options.reduce, "basis": rounded(basis)}
        lines.append(
            f"{options.reduce} principal components of {arms.dim} numbers keep {share:.1%} of their squares"
        )
    return {"features": features, **({"display": display} if display else {})}, lines


def _proposal(arms: TableArms, statistics: Statistics) -> Proposal:
    return propose(statistics, {name: column.kind for name, column in arms.columns_of_all().items()})


def _encode_lines(proposal: Proposal) -> list[str]:
    return [
        "features.fields of the catalogue:",
        *proposal.lines(),
        json.dumps({"fields": list(proposal.fields)}, ensure_ascii=False),
    ]


def _is_reduced(found: Catalogue | None, options: ImportOptions) -> bool:
    if found is None:
        return options.reduce is not None
    return found.reduction is not None


def _send(
    client: Client, catalogue: str, arms: TableArms, basis: NDArray[np.float32] | None, advance: Any
) -> int:
    """Send all arms, reduced where there is a basis; how many are new."""
    added = 0
    for number, body in block_bodies(_arm_rows(rows, basis) for rows in arms.rows()):
        added += client.import_blocks(catalogue, body).added
        advance(number)
    return added


def _arm_rows(rows: TableRows, basis: NDArray[np.float32] | None = None) -> ArmRows:
    metadata = [json.dumps(document, ensure_ascii=False) if document else "" for document in rows.metadata]
    tags = rows.tags if any(rows.tags) else None
    first = rows.numbers[0] if rows.numbers else 1
    features = np.empty((len(rows), 0)) if rows.features is None else rows.features
    if basis is not None:
        features = reduced(features, basis)
    documents = metadata if any(metadata) else None
    return ArmRows(first, rows.ids, features, tags, documents, basis is not None)


def _document(rows: TableRows, place: int) -> dict[str, Any]:
    """An arm as it is sent."""
    result: dict[str, Any] = {"id": rows.ids[place]}
    if rows.features is not None:
        result["features"] = rows.features[place].tolist()
    if rows.tags[place]:
        result["tags"] = rows.tags[place]
    if rows.metadata[place]:
        result["metadata"] = rows.metadata[place]
    return result


def _documents(rows: TableRows) -> Iterator[str]:
    for place in range(len(rows)):
        yield json.dumps(_document(rows, place), ensure_ascii=False)


def _first(arms: TableArms) -> list[str]:
    return list(islice((line for rows in arms.rows() for line in _documents(rows)), SHOWN_ARMS))


class BadRows:
    """Counts bad rows, and writes them beside their files."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._refused: tuple[Path, BadRow] | None = None
        self._columns = Counter[str]()
        self._may_be_missing: dict[str, None] = {}
        self._by_path: dict[Path, list[BadRow]] = {}
        self._count = 0
        self._written: list[str] = []

    def note(self, path: Path, rows: Sequence[BadRow]) -> None:
        """Count some of a file."""
        for bad in rows:
            self._count += 1
            for each in (bad, *bad.also):
                self._columns[each.field] += 1
                if each.may_be_missing:
                    self._may_be_missing[each.field] = None
            if self._count <= self._most:
                self._by_path.setdefault(path, []).append(bad)
            elif self._refused is None:
                self._refused = path, bad

    @property
    def refusal(self) -> FileError | None:
        """The error that names all columns with bad cells, if there is a row too many."""
        if self._refused is None:
            return None
        path, first = self._refused
        words = [str(first.refuse(path))]
        if self._count > 1 or len(self._columns) > 1:
            words.append(f"{counted(self._count, 'row is', 'rows are')} bad{self._told_columns()}")
        if self._may_be_missing:
            names = " ".join(shlex.quote(shown(name)) for name in islice(self._may_be_missing, NAMES_SHOWN))
            words.append(f"--bad-as-missing {names} takes such cells for missing")
        if self._most:
            words.append(f"--skip-bad leaves out at most {self._most:,}")
        else:
            words.append(f"--skip-bad {self._count} leaves them out")
        return FileError("; ".join(words))

    def _told_columns(self) -> str:
        """In which columns cells are bad, and in how many rows; "" of one."""
        if len(self._columns) < 2:
            return ""
        told = [
            f"{shown(name) or 'cells'} {count:,}" for name, count in self._columns.most_common(NAMES_SHOWN)
        ]
        return f", in {', '.join(told)}" + " and more columns" * (len(self._columns) > len(told))

    def write(self) -> None:
        """Write the file of each table that has bad rows."""
        for path, rows in self._by_path.items():
            out = path.with_name(f"{path.name}.bad.csv")
            try:
                with out.open("w", encoding="utf-8", newline="") as file:
                    table = csv.writer(file, lineterminator="\n")
                    table.writerow(BAD_COLUMNS)
                    table.writerows((bad.row, bad.field, _value(bad.value), bad.reason) for bad in rows)
            except OSError as error:
                raise FileError(f"{out}: {error.strerror or 'cannot be written'}") from None
            self._written.append(f"{counted(len(rows), 'bad row was', 'bad rows were')} left out: {out}")

    def lines(self) -> list[str]:
        """What was left out."""
        if self._written or not self._count:
            return self._written
        return [f"{counted(self._count, 'bad row', 'bad rows')} would be left out"]


def _value(value: object) -> str:
    if value is None:
        return ""
    return (value if isinstance(value, str) else repr(value))[:MOST_VALUE_CHARS]
