"""What a user may set for an MQTT broker."""

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.core.errors import ConfigError


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SecretReference(_Settings):
    """Where a secret is kept; never the secret itself."""

    file: str | None = Field(None, description="File whose first line is the secret.")
    env: str | None = Field(None, description="Environment variable that holds it.")

    @model_validator(mode="after")
    def _one(self) -> "SecretReference":
        if (self.file is None) == (self.env is None):
            raise ValueError("name one of 'file' and 'env'")
        return self

    def read(self) -> str:
        """The secret.

        Raises:
            ConfigError: The file or variable is not there.
        """
        if self.env is not None:
            if self.env not in os.environ:
                raise ConfigError(f"environment variable {self.env} is not set", remedy="set it where the gateway is started")
            return os.environ[self.env]
        try:
            return Path(self.file or "").read_text(encoding="utf-8").splitlines()[0]
        except (OSError, IndexError) as error:
            raise ConfigError(f"secret file {self.file} cannot be read", remedy="create it, readable by the gateway only") from error


_PLACES = {"values": ("gateway", "source", "group"), "prediction": ("gateway", "model", "asset"), "state": ("gateway",)}


class TopicSettings(_Settings):
    """Topic templates. `{gateway}` and the names given below are filled in."""

    values: str = Field("lineside/{gateway}/{source}/{group}", description="Of a batch of values: {source}, {group}.")
    prediction: str = Field("lineside/{gateway}/prediction/{model}/{asset}", description="Of a prediction: {model}, {asset}.")
    state: str = Field("lineside/{gateway}/state", description="`online`, or `offline` by last will; retained.")

    @model_validator(mode="after")
    def _fillable(self) -> "TopicSettings":
        for kind, names in _PLACES.items():
            template: str = getattr(self, kind)
            try:
                topic = template.format(**dict.fromkeys(names, "x"))
            except (KeyError, IndexError, ValueError, AttributeError):
                raise ValueError(f"{kind}: '{template}' can be filled with {', '.join(f'{{{name}}}' for name in names)} only") from None
            if not topic or set(topic) & set("+#\0"):
                raise ValueError(f"{kind}: '{template}' is no topic to publish to: it is empty or holds '+' or '#'")
        return self


class MqttSettings(_Settings):
    """One broker that takes predictions, and values if wanted."""

    name: str = Field(min_length=1, description="Unique name.")
    type: Literal["mqtt"] = Field(description="Connector.")
    host: str = Field(min_length=1, description="Host name or address of the broker.")
    port: int = Field(1883, ge=1, le=65535, description="TCP port.")
    protocol: Literal["3.1.1", "5"] = Field("3.1.1", description="Version of MQTT; with 5 some brokers say why they end a session.")
    username: str | None = Field(None, description="User name, if the broker asks for one.")
    password: SecretReference | None = Field(None, description="Where the password is kept.")
    client_id: str | None = Field(None, description="Client id; made from the machine id and the gateway's name if left out.")
    keep_alive_s: int = Field(15, ge=2, le=3600, description="Keep-alive interval.")
    values: bool = Field(True, description="Whether measured values are published, not only predictions.")
    topics: TopicSettings = Field(TopicSettings(), description="Topic templates.")
    outbox_mb: float = Field(64, gt=0, le=100_000, description="Messages kept on disk while the broker is away; beyond it the oldest go.")
    max_message_kb: float = Field(256, gt=0, description="Larger messages are rejected rather than sent.")
