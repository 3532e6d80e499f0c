"""What a user may set for a model."""

from pydantic import BaseModel, ConfigDict, Field


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class AssetSettings(_Settings):
    """One machine the model speaks about."""

    name: str = Field(min_length=1, description="Name of the asset, as in its tags.")
    inputs: dict[str, str] = Field(default_factory=dict, description="Tag of single inputs, where the pattern does not hold.")


class ModelSettings(_Settings):
    """A model bundle in service, for one or many assets."""

    name: str = Field(min_length=1, description="Unique name of the model here.")
    bundle: str = Field(min_length=1, description="Folder or zip file of the bundle; `demo` is the one that comes with Lineside.")
    deadline_ms: float | None = Field(None, gt=0, description="Time an inference may take; half the model's period if left out.")
    inputs: str = Field("{asset}.{input}", description="Pattern that gives an input's tag.")
    assets: list[AssetSettings] = Field(min_length=1, description="The machines; one call answers for all of them.")

    def tag_of(self, asset: AssetSettings, signal: str) -> str:
        """Name of the tag that feeds a signal of an asset.

        Raises:
            KeyError: The pattern names something else than `{asset}` and `{input}`.
        """
        return asset.inputs.get(signal) or self.inputs.format(asset=asset.name, input=signal)
