"""What the cells of a column mean: a kind for each column of texts, and values that JSON can hold.

    kind     texts                                                     becomes
    number   1234.5, 1,234.50, 1.234,50, 12 %, € 12.50, 12,50 EUR      a number
    boolean  true and false, yes and no, on and off, t and f, y and n  true, false
    date     2024-01-31, 2024-01-31T10:00:00Z, 31.01.2024, 31-Jan-2024 a text as ISO 8601 has it, UTC
    list     ["a", "b"], a|b where the parts come again                a list
    text     anything else                                             the text

A column is of a kind if four fifths of its texts are. Those that are not are then mistakes, which name their
row, and not a column of texts. Words that are abbreviations too (NO is a country, F a gender, ON a state)
make a column of booleans only where both of a pair stand in it, and nothing else. Values of typed files
(Parquet, NDJSON) keep their type; of texts in them only amounts of money become numbers. An empty text, null,
NaN and NaT are missing.
"""

from __future__ import annotations

import ast
import datetime as dt
import decimal
import math
import re
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

Kind = Literal["number", "boolean", "date", "list", "text", "value"]
SHARE = 0.8  # of the texts of a column
MOST_DISTINCT = 50_000  # that are counted before they are looked at
MAX_PART_CHARS = 64
MAX_NUMBER, MAX_SCALED = 1e15, 1e6  # of fields of a catalogue
EXACT_DIGITS = 18  # of a whole number: one with more is of an article, and a float would change it

MISSING = frozenset({"", "nan", "null", "none", "nat", "<na>", "n/a", "#n/a", "\\n"})
MISSING_VALUES = MISSING | {"na", "-", "--", "?"}  # where the column has no texts
BOOLEANS = dict.fromkeys(("true", "yes", "on", "t", "y"), True) | dict.fromkeys(
    ("false", "no", "off", "f", "n"), False
)
PAIRS = (("no", "yes"), ("on", "off"), ("t", "f"), ("y", "n"))
OPPOSITES = dict(PAIRS) | {b: a for a, b in PAIRS if b != "yes"}  # of abbreviations
CURRENCIES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|KZT|MXN|NOK|NZD|PLN|RON|RUB|SEK|SGD|THB"
    "|TRY|TWD|UAH|USD|VND|ZAR"
)
_SYMBOLS = "".join(chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) == "Sc")
_UNIT = rf"(?:(?:US|CA|AU|C|A|R|HK)?[{_SYMBOLS}]|{CURRENCIES}|euros?|kr\.?|zł|Kč|Fr\.?|%)"
_DIGITS = r"(?:\d[\d.,'’\u00a0\u202f ]*|[.,]\d+)(?:[eE][+-]?\d+)?"
AMOUNT = re.compile(
    rf"(?P<sign>[+\-−]?)\s*(?P<before>{_UNIT})?\s*(?P<sign2>[+\-−]?)(?P<digits>{_DIGITS})\s*(?P<after>{_UNIT})?",
    re.IGNORECASE,
)
PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
WHOLE = re.compile(r"[+-]?\d+")
# No thousands begin with 0: 0,500 is a half.
GROUPED = {mark: re.compile(rf"[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+") for mark in ",.'’ \u00a0\u202f"}
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DATE_LIKE = re.compile(
    rf"\d{{4}}[-/]\d|\d{{1,2}}[./-](?:\d{{1,2}}|{_MONTH})[./-]\d{{4}}|\d{{1,2}} {_MONTH}|{_MONTH}[a-z]* \d"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d"
)
DATE_FORMATS = (
    "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%a, %d %b %Y %H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S GMT",
)  # fmt: skip
ISO = "iso"
# By the kind of a field of a catalogue.
KINDS: Mapping[str, Kind] = {
    "category": "text", "categories": "list", "number": "number", "cycle": "number", "hash": "text",
}  # fmt: skip
RULES: Mapping[str, str] = {
    "number": "must be a number",
    "boolean": "must be true or false",
    "date": "must be a date of the calendar, in the format that most of the column have",
    "list": "must be a list",
    "text": "must be a text",
}


class Column:
    """The kind of one column, found by ``see`` and ``settle``; then ``value`` says what a cell means.

    ``declared``: its kind where something else says it. ``of_texts``: whether all cells are texts, as in CSV.
    ``semicolons``: whether these separate cells: commas are decimal there.
    ``parameters``: of the field of a catalogue that declares it.
    ``detail``: of numbers the decimal mark, of dates the format.
    """

    def __init__(
        self,
        name: str,
        *,
        of_texts: bool,
        semicolons: bool = False,
        declared: Kind | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.of_texts = name, of_texts
        self.kind: Kind = declared or "text"
        self.detail = ""
        self._semicolons, self._declared, self._parameters = semicolons, declared, parameters or {}
        self._waiting = Counter[str]()
        self._counts = Counter[str]()
        self._units = Counter[str]()
        self._parts = Counter[str]()
        self._marks = Counter[str]()
        self._booleans = set[str]()
        self._has_codes = False
        self._others = 0

    def see(self, cells: Sequence[Any]) -> None:
        """Count some of the cells."""
        texts = cells if self.of_texts else [cell for cell in cells if isinstance(cell, str)]
        self._others += 0 if self.of_texts else sum(cell is not None for cell in cells) - len(texts)
        self._waiting.update(texts)
        if len(self._waiting) > MOST_DISTINCT:
            self._classify()

    def declare(self, kind: Kind) -> None:
        """Take the column for one of this kind from now on."""
        self._declared = self.kind = kind

    def settle(self) -> None:
        """Decide what the column is of."""
        self._classify()
        if self._declared == "number":
            self.detail = self._decimal_mark()
        elif self._declared is None:
            self.kind, self.detail = self._found() if self._counts["all"] else ("value", "")

    def expect_numbers(self) -> None:
        """Take a settled column for one of numbers if it has any: those that are none are then mistakes."""
        if self.kind in {"text", "date", "list"} and self._counts["number"] and len(self._units) <= 1:
            self.kind, self.detail = "number", self._decimal_mark()

    def _found(self) -> tuple[Kind, str]:
        counts = self._counts
        enough = SHARE * counts["all"]
        if not self.of_texts:
            is_money = counts["money"] >= enough and len(self._units) == 1
            is_number = bool(self._others) and counts["number"] == counts["all"] and not self._has_codes
            return ("number", self._decimal_mark()) if is_money or is_number else ("value", "")
        if not self._has_codes and counts["number"] >= enough and len(self._units) <= 1:
            return "number", self._decimal_mark()
        if counts["boolean"] >= enough and self._are_booleans():
            return "boolean", ""
        formats = [(counts[each], each) for each in (ISO, *DATE_FORMATS) if counts[each] >= enough]
        if formats:
            # 03/04/2024 is of two formats: as nobody can tell, it stays a text
            best = max(count for count, _ in formats)
            names = [name for count, name in formats if count == best]
            return ("date", names[0]) if len(names) == 1 else ("text", "a date whose month is unknown")
        again = sum(count > 1 for count in self._parts.values())
        if counts["json"] >= enough or (counts["parts"] and 2 * again >= len(self._parts)):
            return "list", ""
        return "text", ""

    def _are_booleans(self) -> bool:
        """Whether words that are abbreviations too are none here."""
        short = self._booleans & OPPOSITES.keys()
        is_whole = self._counts["boolean"] == self._counts["all"]
        return not short or (is_whole and all(OPPOSITES[word] in self._booleans for word in short))

    def _decimal_mark(self) -> str:
        """1,234 alone has thousands, but a decimal comma where semicolons separate cells; 1.234 has a decimal
        point, but 1.234 EUR thousands.
        """
        marks = self._marks
        if marks[","] != marks["."]:
            return "," if marks[","] > marks["."] else "."
        if marks[",?"]:
            return "," if self._semicolons else "."
        return "," if self._units and marks[".?"] else "."

    @property
    def notes(self) -> Iterator[str]:
        """What nobody can tell of its numbers, and how they are taken; and what stands behind them."""
        marks, units = self._marks, ", ".join(sorted(self._units))
        if self.kind == "number" and not marks[","] and not marks["."]:
            mark = "," if marks[",?"] else "." if marks[".?"] and (self._semicolons or units) else ""
            meaning = "a decimal mark" if mark == self.detail else "a mark of thousands"
            if mark:
                yield f"{self.name}: numbers such as 1{mark}234 are ambiguous: it is taken for {meaning}"
        if units and self.kind == "number":
            yield f"{self.name}: {units} {'is' if len(self._units) == 1 else 'are'} left out"
        elif len(self._units) > 1 and self._counts["number"] >= SHARE * self._counts["all"]:
            yield f"{self.name}: its numbers are of several units, {units}: they stay texts"

    def _classify(self) -> None:
        counts = self._counts
        for raw, times in self._waiting.items():
            text = raw.strip()
            word = text.lower()
            if word in MISSING_VALUES:
                continue
            counts["all"] += times
            self._add_parts(text, times)
            if self._is_amount(text, times):
                continue
            if word in BOOLEANS:
                counts["boolean"] += times
                self._booleans.add(word)
            elif text[:1] in "[(" and list_of(text) is not None:
                counts["json"] += times
            elif DATE_LIKE.match(text):
                for each in (ISO, *DATE_FORMATS):
                    # the months of 1,000 dates tell the format: to try all takes long
                    if counts["dates"] < 1_000 or counts[each] >= SHARE * counts["dates"] / 2:
                        counts[each] += times * (date_of(text, each) is not None)
                counts["dates"] += times
        self._waiting.clear()

    def _is_amount(self, text: str, times: int) -> bool:
        amount = AMOUNT.fullmatch(text) if len(text) <= MAX_PART_CHARS else None
        if amount is None:
            return False
        digits = amount["digits"].strip()
        mark = _mark_of(digits) if "," in digits or "." in digits else ""
        try:
            number = plain_number(text, {"": ".", ",?": "."}.get(mark, mark[:1]))
        except ValueError:  # 31.01.2024
            return False
        self._counts["number"] += times
        unit = (amount["before"] or amount["after"] or "").upper()
        unit = "EUR" if unit in {"€", "EURO", "EUROS"} else unit
        if unit:
            self._units[unit] += times
            self._counts["money"] += times
        # 00501 is a postal code and 12345678901234567890 a number of an article
        is_long = WHOLE.fullmatch(number) is not None and len(number.strip("+-")) > EXACT_DIGITS
        self._has_codes |= re.match(r"0\d", digits) is not None or is_long
        self._marks[mark] += times
        return True

    def _add_parts(self, text: str, times: int) -> None:
        if self.of_texts and len(self._parts) <= MOST_DISTINCT:
            parts = text.split("|")
            if all(part.strip() and len(part) <= MAX_PART_CHARS for part in parts):
                self._counts["parts"] += times * (len(parts) > 1)
                self._parts.update(dict.fromkeys(parts, times))

    def value(self, cell: Any) -> Any:
        """What a cell means: a value that JSON can hold, None where it is missing. Raises ValueError."""
        found = self._coerced(plain(cell)) if not isinstance(cell, str) else self._parsed(cell)
        if self._parameters and isinstance(found, int | float):
            self._check(found)
        return found

    def _check(self, number: float) -> None:
        """Raise ValueError for what the field cannot encode."""
        parameters = self._parameters
        if parameters.get("log") and number <= -1:
            raise ValueError("must be above -1: its logarithm is taken")
        if abs(number) > MAX_NUMBER:
            raise ValueError("must be at most 1e15 in magnitude")
        scaled = math.log1p(number) if parameters.get("log") else number
        if abs(scaled - (parameters.get("mean") or 0.0)) > MAX_SCALED * (parameters.get("scale") or 1.0):
            raise ValueError("is more than 1,000,000 times scale from the mean of its field")

    def _parsed(self, cell: str) -> Any:  # noqa: PLR0911 - one for each kind
        text = cell.strip()
        word = text.lower()
        if word in MISSING or (self.kind not in {"text", "value"} and word in MISSING_VALUES):
            return None
        match self.kind:
            case "number":
                if self._declared is not None and word in BOOLEANS:
                    return int(BOOLEANS[word])
                return number_of(text, self.detail)
            case "boolean" if word in BOOLEANS:
                return BOOLEANS[word]
            case "date":
                found = date_of(text, self.detail or ISO)
                if found is not None:
                    return iso(found)
            case "list":
                parts = list_of(text) if text[:1] in "[(" else [part.strip() for part in text.split("|")]
                if parts is not None:
                    return [each for each in map(plain, parts) if each is not None]
            case "text" | "value":
                return composed(cell if self.kind == "value" else text)
        raise ValueError(RULES[self.kind])

    def _coerced(self, value: Any) -> Any:
        """A value of a typed file as the column's declared kind has it."""
        if value is None or self._declared is None:
            return value
        match self._declared:
            case "number" if isinstance(value, bool):
                return int(value)
            case "text" if isinstance(value, bool):
                return "true" if value else "false"
            case "text" if isinstance(value, int | float):
                return str(value)
            case "list":
                return [str(each) for each in value] if isinstance(value, list) else [str(value)]
        rules = {"number": int | float, "text": str}
        if self._declared in rules and not isinstance(value, rules[self._declared]):
            raise ValueError(RULES[self._declared])
        return value


def composed(text: str) -> str:
    """The text with letters and their accents as one sign each (NFC), as most programs write them.

    A Mac writes names of files otherwise: then one value would be two.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def plain(value: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each type
    """A value of a typed file as JSON can hold it; None where it is missing. Raises ValueError."""
    match value:
        case None | bool():
            return value
        case str():
            return composed(value)
        case uuid.UUID():
            return str(value)
        case int():
            if not -(2**63) <= value < 2**64:
                raise ValueError("must be an integer of at most 64 bits")
            return value
        case float():
            if math.isinf(value):
                raise ValueError("must be finite")
            return None if math.isnan(value) else value
        case dt.datetime() | dt.date() | dt.time():
            return None if value != value else iso(value)  # noqa: PLR0124 - pandas' NaT
        case dt.timedelta():
            return value.total_seconds()
        case decimal.Decimal():
            return plain(int(value) if value.is_finite() and value == value.to_integral() else float(value))
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise ValueError("must be text in UTF-8") from None
        case Mapping():
            return {str(name): part for name, each in value.items() if (part := plain(each)) is not None}
        case list() | tuple():
            if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
                return plain(dict(value))  # a map of Arrow's
            return [part for part in map(plain, value) if part is not None]
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and Arrow
        return plain(value.tolist())
    raise ValueError("is of a type that JSON cannot hold")


def iso(value: dt.datetime | dt.date | dt.time) -> str:
    """The text of a time; one with an offset as UTC, so that texts are in the order of times."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat()


def number_of(text: str, mark: str = ".") -> int | float:
    """The number that a text says. ``mark``: its decimal mark. Raises ValueError."""
    number = plain_number(text, mark)
    found = float(number)
    if not math.isfinite(found):
        raise ValueError("must be finite")
    return int(number) if WHOLE.fullmatch(number) and len(number.strip("+-")) <= EXACT_DIGITS else found


def plain_number(text: str, mark: str) -> str:
    """The number of a text as Python writes it, without unit and marks of thousands. Raises ValueError."""
    if PLAIN.fullmatch(text) and not (mark == "," and "." in text):
        return text
    amount = AMOUNT.fullmatch(text)
    if amount is None or (amount["sign"] and amount["sign2"]):
        raise ValueError(RULES["number"])
    digits, _, exponent = re.sub("[eE]", "e", amount["digits"].strip()).partition("e")
    own = mark or "."
    whole, _, rest = digits.partition(own)
    for group, pattern in GROUPED.items():
        if group != own and pattern.fullmatch(whole):
            whole = whole.replace(group, "")
            break
    if not re.fullmatch(r"\d*", whole) or not re.fullmatch(r"\d*", rest) or not whole + rest:
        raise ValueError(f"must be a number with a decimal {'comma' if own == ',' else 'point'}")
    sign = "-" if (amount["sign"] or amount["sign2"]) in {"-", "−"} else ""
    number = f"{sign}{whole or '0'}" + (f".{rest}" if rest else "")
    return f"{number}e{exponent}" if exponent else number


def _mark_of(digits: str) -> str:
    """Which decimal mark a number has: "," or "."; ",?" or ".?" where it may stand between thousands."""
    last = max(digits.rfind(","), digits.rfind("."))
    mark, other = digits[last], {",": ".", ".": ","}[digits[last]]
    if digits.count(mark) > 1:
        return other
    if other in digits or not GROUPED[mark].fullmatch(digits):
        return mark
    return f"{mark}?"


def list_of(text: str) -> list[Any] | None:
    """A list as JSON or Python writes it, or numpy (numbers with blanks between); None: it is none."""
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            try:
                found = [float(part) for part in text.strip("[]() ").replace(",", " ").split()]
            except ValueError:
                return None
    return list(found) if isinstance(found, list | tuple) else None


def date_of(text: str, form: str) -> dt.datetime | dt.date | None:
    """What a text of this form says, also with " UTC" behind it, as databases write it; None: it is none."""
    if text.endswith(" UTC"):
        found = date_of(text.removesuffix(" UTC"), form)
        is_plain = isinstance(found, dt.datetime) and found.tzinfo is None
        return found.replace(tzinfo=dt.UTC) if is_plain else None  # type: ignore[union-attr,call-arg]
    try:
        if form != ISO:
            found = dt.datetime.strptime(text, form)  # noqa: DTZ007 - dates have no zone
            if "%H" not in form:
                return found.date()
            return found.replace(tzinfo=dt.UTC) if form.endswith("GMT") else found
        if len(text) < 8 or "-" not in text[4:8]:
            return None
        return dt.date.fromisoformat(text) if len(text) == 10 else dt.datetime.fromisoformat(text)
    except ValueError:
        return None
