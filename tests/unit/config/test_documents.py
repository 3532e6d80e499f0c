"""The documents say what the program knows."""

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from gateway.config.schema import Settings


def test_every_setting_is_in_the_document_and_nothing_else(repository: Path) -> None:
    schema: dict[str, Any] = Settings.model_json_schema()
    definitions = [schema, *schema["$defs"].values()]
    settings = {name for definition in definitions for name in definition.get("properties", {})}
    rows = [line.split("|") for line in (repository / "docs" / "configuration.md").read_text().splitlines() if line.startswith("| `")]
    documented = {cells[1].strip(" `") for cells in rows if not cells[1].strip(" `").startswith("gateway.")}

    assert settings - {"sources", "derived", "models", "publish", "control", "history", "gateway"} <= documented
    assert documented <= settings


def test_every_setting_has_a_description() -> None:
    waiting: list[type[BaseModel]] = [Settings]
    seen: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop()
        seen.add(model)
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            parts = [field.annotation, *get_args(field.annotation)]
            waiting += [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen]
    assert len(seen) >= 15


def test_the_readme_names_only_targets_and_documents_that_exist(repository: Path) -> None:
    readme = (repository / "README.md").read_text()
    makefile = (repository / "Makefile").read_text()
    for word in ("demo", "test", "peers", "check", "bench", "pictures"):
        assert f"make {word}" in readme
        assert f"\n{word}:" in makefile
    for part in readme.split("](")[1:]:
        assert (repository / part.split(")")[0]).exists(), part.split(")")[0]
