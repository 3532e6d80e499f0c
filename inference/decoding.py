"""Strict decoding: a field that nobody knows is an error, however deep it stands."""

from typing import Any, Literal, TypeVar

import msgspec

Decoded = TypeVar("Decoded")


def decode(data: bytes, kind: type[Decoded], form: Literal["json", "yaml"]) -> Decoded:
    """Decode a file.

    Args:
        data: The file.
        kind: What it holds. Of the types inside, dataclasses would let unknown fields pass by themselves.
        form: How it is written.

    Raises:
        msgspec.DecodeError: It is damaged, or does not hold this; the text says where.
    """
    raw = msgspec.json.decode(data) if form == "json" else msgspec.yaml.decode(data)
    value = msgspec.convert(raw, kind)
    unknown = _unknown(raw, msgspec.to_builtins(value), "$")
    if unknown:
        raise msgspec.ValidationError(f"Object contains unknown field `{unknown[0]}`")
    return value


def _unknown(raw: Any, known: Any, at: str) -> list[str]:  # noqa: ANN401 - trees of builtins
    if isinstance(raw, dict) and isinstance(known, dict):
        return [
            path for key, part in raw.items() for path in (_unknown(part, known[key], f"{at}.{key}") if key in known else [f"{at}.{key}"])
        ]
    if isinstance(raw, list) and isinstance(known, list | tuple):
        return [path for i, (left, right) in enumerate(zip(raw, known, strict=False)) for path in _unknown(left, right, f"{at}[{i}]")]
    return []
