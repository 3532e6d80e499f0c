"""A YAML file as plain data, with the place of every key and value."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.core.errors import ConfigError

Path_ = tuple[str | int, ...]

_MAX_BYTES = 8_000_000
_MAX_NODES = 300_000
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: where, what is wrong, what would be right."""

    place: Place
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" + (f" -> {self.remedy}" if self.remedy else "")


@dataclass(slots=True)
class Document:
    """Plain data, and where each part of it stands.

    Attributes:
        file: Name shown.
        data: The tree.
        values: Place of each value by its path.
        keys: Place of each mapping key by the path of its value.
        problems: What was wrong with the file itself.
    """

    file: str
    data: Any = None
    values: dict[Path_, Place] = field(default_factory=dict)
    keys: dict[Path_, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path_, *, key: bool = False) -> Place:
        """Where a path stands, or the nearest thing around it that does."""
        known = [part for part in _prefixes(path) if part in self.values]
        best = known[0] if known else ()
        if key and best == path and best in self.keys:
            return self.keys[best]
        return self.values.get(best, Place(self.file, 1, 1))


def _prefixes(path: Path_) -> Iterator[Path_]:
    for length in range(len(path), -1, -1):
        yield path[:length]


def read_document(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: There is no such file, or it is no YAML at all; one line with its position.
    """
    name = str(path)
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(f"{name}:1:1: {size / 1e6:.0f} MB is too large", remedy="put tags into tag sheets; 8 MB is the limit")
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{name}: no such file", remedy="make one with `lineside init`") from error
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}", remedy="check the name and the permissions") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{name}:{line}:{column}: not UTF-8", remedy="save the file as UTF-8") from error
    if not text.strip():
        raise ConfigError(f"{name}:1:1: the file is empty", remedy="make a sample with `lineside init`")
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax(name, error), remedy=_syntax_remedy(text, error)) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}:1:1: no YAML: {str(error).splitlines()[0]}", remedy="remove control characters") from error
    if node is None:
        raise ConfigError(f"{name}:1:1: the file has only comments", remedy="make a sample with `lineside init`")
    document = Document(name)
    _Builder(document).build(node)
    return document


def _syntax(name: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{name}:1:1"
    return f"{place}: {error.problem or error.context or 'no YAML'}"


def _syntax_remedy(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
        return "indent with spaces, not tabs"
    return "check indentation, colons and quotes on this line and the one before"


class _Builder:
    """Turns nodes into data. Aliases are followed, but not without end."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._loader = yaml.constructor.SafeConstructor()
        self._count = 0

    def build(self, node: yaml.Node) -> None:
        self._document.data = self._value(node, ())

    def _place(self, node: yaml.Node) -> Place:
        return Place(self._document.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _value(self, node: yaml.Node, path: Path_) -> Any:  # noqa: ANN401 - a tree of plain data
        self._count += 1
        if self._count > _MAX_NODES or len(path) > _MAX_DEPTH:
            raise ConfigError(
                f"{self._place(node)}: aliases or nesting make this file far too large", remedy="write it out, without aliases"
            )
        self._document.values[path] = self._place(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(part, (*path, i)) for i, part in enumerate(node.value)]
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._document.problems.append(Problem(self._place(node), f"'{node.value}': {str(error).splitlines()[0]}", "put it in quotes"))
            return str(node.value)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in result:
                first = self._document.keys[(*path, key)]
                self._document.problems.append(
                    Problem(self._place(key_node), f"'{key}' is given twice", f"remove one; the first is in line {first.line}")
                )
                continue
            self._document.keys[(*path, key)] = self._place(key_node)
            result[key] = self._value(value_node, (*path, key))
        return result
