"""From a file to checked settings, or to the list of everything that is wrong with it."""

import copy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.check import check
from gateway.config.document import Document, Path_, Problem, read_document
from gateway.config.schema import Settings
from gateway.config.sheet import insert_sheets
from gateway.core.errors import ConfigError

_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings and where they came from."""

    path: Path
    settings: Settings

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.path.parent

    @property
    def state_dir(self) -> Path:
        """Where the gateway keeps its state."""
        return self.folder / self.settings.gateway.state_dir

    @property
    def socket(self) -> Path:
        """The API's unix socket."""
        name = self.settings.gateway.socket
        return self.folder / name if name else self.state_dir / "lineside.sock"


class ConfigProblemsError(ConfigError):
    """A file with mistakes; `problems` has all of them, by place."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        super().__init__("\n".join(map(str, self.problems)), remedy=f"correct {count} mistake{'s' if count > 1 else ''} in {path}")

    def __str__(self) -> str:
        """One line per mistake."""
        return self.text


def load(path: Path) -> Loaded:
    """Read and check a configuration. Opens no socket.

    Raises:
        ConfigError: With every mistake at once, each with its place and what would be right.
    """
    document = read_document(path)
    insert_sheets(document, path.parent)
    problems = list(document.problems)
    settings, hidden = _validated(document, problems)
    if settings is not None:
        # A value that is wrong in itself was left out; what its default would lead to is not the user's mistake.
        judged = {problem.place for problem in problems}
        problems.extend(found for found in check(settings, document, path.parent, hidden) if found.place not in judged)
    if problems or settings is None:
        raise ConfigProblemsError(path, problems)
    return Loaded(path.absolute(), settings)


def _validated(document: Document, problems: list[Problem]) -> tuple[Settings | None, frozenset[str]]:
    """Settings made of what is right in the tree, so that one mistake does not hide the next.

    Returns:
        The settings, and the names of things that were left out of them because they are wrong.
    """
    if not isinstance(document.data, dict):
        problems.append(Problem(document.place(()), "this is no mapping", "start with `gateway:`; see `lineside init`"))
        return None, frozenset()
    tree = copy.deepcopy(document.data)
    # Paths change when items are taken out of lists, so each item remembers where it stood.
    origin: dict[Path_, Path_] = {}
    hidden: set[str] = set()
    dropped: set[Path_] = set()
    for _ in range(_ROUNDS):
        try:
            return Settings.model_validate(tree), frozenset(hidden)
        except ValidationError as error:
            removals: set[Path_] = set()
            for details in error.errors(include_url=False):
                where = _true_path(tree, tuple(details["loc"]))
                true = _original(where, origin)
                ours = true in dropped or (details["type"] == "too_short" and any(path[: len(true)] == true for path in dropped))
                if not ours:
                    problems.append(_problem(document, true, details))
                removals.add(_removable(where, details["type"]))
                dropped.add(_original(_removable(where, details["type"]), origin))
            if () in removals:
                return None, frozenset(hidden)
            _remove(tree, removals, origin, hidden)
    return None, frozenset(hidden)


def _true_path(tree: Any, loc: tuple[str | int, ...]) -> Path_:  # noqa: ANN401 - a tree of plain data
    """Pydantic's location without the names of union members it puts in between."""
    path: list[str | int] = []
    node: Any = tree
    for i, part in enumerate(loc):
        if isinstance(node, dict) and part in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif i < len(loc) - 1 or not isinstance(node, dict):
            continue
        path.append(part)
    return tuple(path)


def _original(path: Path_, origin: dict[Path_, Path_]) -> Path_:
    for length in range(len(path), 0, -1):
        if path[:length] in origin:
            return (*origin[path[:length]], *path[length:])
    return path


def _removable(path: Path_, kind: str) -> Path_:
    """What must go so that the rest is valid: the wrong value; where it is required, the list item or section around it."""
    if kind not in ("missing", "too_short"):
        return path
    for length in range(len(path), 0, -1):
        if isinstance(path[length - 1], int):
            return path[:length]
    return path[:1] if path[:1] not in ((), ("gateway",)) else ()


def _remove(tree: Any, removals: set[Path_], origin: dict[Path_, Path_], hidden: set[str]) -> None:  # noqa: ANN401 - plain data
    # Whole sections go instead of their parts, and later list items before earlier ones.
    outermost = [path for path in removals if not any(path[:n] in removals for n in range(1, len(path)))]
    for path in sorted(outermost, key=_order, reverse=True):
        parent = tree
        for part in path[:-1]:
            parent = parent[part]
        gone = parent.pop(path[-1])
        hidden.update(_names(gone))
        if isinstance(path[-1], int):
            for later in range(path[-1], len(parent)):
                here = (*path[:-1], later)
                origin[here] = origin.get((*path[:-1], later + 1), (*_original(path[:-1], origin), later + 1))


def _order(path: Path_) -> list[tuple[str, int]]:
    return [("", part) if isinstance(part, int) else (part, -1) for part in path]


def _names(node: Any) -> set[str]:  # noqa: ANN401 - plain data
    if isinstance(node, dict):
        own = {node["name"]} if isinstance(node.get("name"), str) else set()
        return own.union(*(_names(part) for part in node.values()))
    return set().union(*map(_names, node)) if isinstance(node, list) else set()


def _problem(document: Document, path: Path_, details: ErrorDetails) -> Problem:
    kind, message, context = details["type"], details["msg"], details.get("ctx", {})
    key = path[-1] if path else ""
    if kind == "extra_forbidden":
        known = _known_keys(path[:-1])
        near = get_close_matches(str(key), known, n=1, cutoff=0.5)
        remedy = f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(known)}"
        return Problem(document.place(path, key=True), f"unknown key '{key}'", remedy)
    if kind == "missing":
        return Problem(document.place(path[:-1]), f"'{key}' is missing", f"add `{key}:` here")
    shown = details["input"]
    given = f"'{shown}' " if isinstance(shown, str | int | float | bool) else ""
    if key == "password":
        return Problem(document.place(path), "a secret must not stand in the configuration", "write {file: PATH} or {env: NAME}")
    if kind == "value_error":
        text, _, remedy = str(context.get("error", message)).partition(": write ")
        return Problem(document.place(path), text, f"write {remedy}" if remedy else "")
    return Problem(document.place(path), f"{given}is wrong for '{_key_name(path)}'", message[0].lower() + message[1:])


def _key_name(path: Path_) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _known_keys(path: Path_) -> list[str]:
    """Names of the settings that are known at a path."""
    schema: dict[str, Any] = Settings.model_json_schema()
    node: dict[str, Any] = schema
    for part in path:
        node = _resolved(schema, node)
        node = (
            node.get("items", {})
            if isinstance(part, int)
            else node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        )
    return list(_resolved(schema, node).get("properties", {}))


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while True:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in node:
            node = next((part for part in node["anyOf"] if "$ref" in part), node["anyOf"][0])
        else:
            return node
