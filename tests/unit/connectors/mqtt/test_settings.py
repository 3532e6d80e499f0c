"""What a user may write for a broker."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from connectors.mqtt.settings import MqttSettings, SecretReference, TopicSettings
from gateway.core.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "template", "hint"),
    [
        ("values", "plant/{asset}", "{gateway}, {source}, {group} only"),
        ("prediction", "plant/{}", "{gateway}, {model}, {asset} only"),
        ("state", "plant/{gateway", "{gateway} only"),
        ("state", "plant/{gateway.x}", "{gateway} only"),
        ("state", "plant/#", "holds '+' or '#'"),
        ("values", "", "is empty"),
    ],
)
def test_a_template_that_cannot_become_a_topic_is_refused_with_what_may_be_filled_in(kind: str, template: str, hint: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        TopicSettings(**{kind: template})
    assert hint in str(refusal.value)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="hots"):
        MqttSettings.model_validate({"name": "broker", "type": "mqtt", "host": "h", "hots": 1})


def test_a_secret_comes_from_one_place_and_is_read_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    reference = SecretReference(file=str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        reference.read()
    file.write_text("hush\n")
    assert reference.read() == "hush"
    with pytest.raises(ConfigError, match="not set"):
        SecretReference(env="LINESIDE_TEST_PASSWORD").read()
    monkeypatch.setenv("LINESIDE_TEST_PASSWORD", "hush")
    assert SecretReference(env="LINESIDE_TEST_PASSWORD").read() == "hush"
    with pytest.raises(ValidationError, match="one of"):
        SecretReference()
