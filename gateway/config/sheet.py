"""Tag sheets: CSV files with one tag per row, read into the tree as if they stood in it."""

import csv
import io
from pathlib import Path
from typing import Any

from connectors.modbus.settings import ModbusTagSettings
from gateway.config.document import Document, Path_, Place, Problem

_NUMBERS = {"scale", "offset", "low", "high", "dead_band"}


def insert_sheets(document: Document, folder: Path) -> None:
    """Read the sheets that the groups name; their rows become tags with places of their own."""
    data = document.data
    sources = data.get("sources") if isinstance(data, dict) else None
    for s, source in enumerate(sources if isinstance(sources, list) else ()):
        groups = source.get("groups") if isinstance(source, dict) else None
        for g, group in enumerate(groups if isinstance(groups, list) else ()):
            if isinstance(group, dict) and isinstance(group.get("tag_sheet"), str):
                _insert(document, group, ("sources", s, "groups", g), folder / group["tag_sheet"])


def _insert(document: Document, group: dict[str, Any], path: Path_, sheet: Path) -> None:
    try:
        text = sheet.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = Problem(document.place((*path, "tag_sheet")), f"tag sheet {sheet}: {error.strerror}", "check the name")
        document.problems.append(problem)
        return
    except UnicodeDecodeError:
        document.problems.append(Problem(Place(str(sheet), 1, 1), "not UTF-8", "save the sheet as UTF-8 CSV"))
        return
    first = text.splitlines()[0] if text.strip() else ""
    delimiter = ";" if first.count(";") > first.count(",") else ","
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    header = [name.strip().lower() for name in next(rows, [])]
    known = list(ModbusTagSettings.model_fields)
    for column, name in enumerate(header, start=1):
        if name not in known:
            document.problems.append(Problem(Place(str(sheet), 1, column), f"unknown column '{name}'", f"columns are: {', '.join(known)}"))
    tags = group.setdefault("tags", [])
    if not isinstance(tags, list):
        return
    document.values.setdefault((*path, "tags"), Place(str(sheet), 1, 1))
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        at: Path_ = (*path, "tags", len(tags))
        document.values[at] = Place(str(sheet), rows.line_num, 1)
        tag: dict[str, Any] = {}
        for column, (name, cell) in enumerate(zip(header, cells, strict=False), start=1):
            if name in known and cell.strip():
                tag[name] = _cell(name, cell.strip(), delimiter)
                document.values[(*at, name)] = document.keys[(*at, name)] = Place(str(sheet), rows.line_num, column)
        tags.append(tag)


def _cell(name: str, text: str, delimiter: str) -> str | float:
    """A decimal comma is understood where the comma does not separate columns."""
    if name not in _NUMBERS:
        return text
    try:
        return float(text.replace(",", ".") if delimiter == ";" else text)
    except ValueError:
        return text
