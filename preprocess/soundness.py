"""What no signal path can be built from, all of it at once."""

import math
from collections.abc import Iterator

from gateway.core.errors import ConfigError
from preprocess.enable import Enable
from preprocess.spec import ChainSpec, DerivedSpec, FilterSpec

_SOURCES = {"difference": 2, "ratio": 2, "rate": 1, "counter": 1, "bit_field": 1}


def verify(chain: ChainSpec) -> None:
    """Refuse a chain that cannot work.

    Raises:
        ConfigError: It names every fault.
    """
    found = list(faults(chain))
    if found:
        raise ConfigError("; ".join(found), remedy="correct the training plan and train the bundle again")


def faults(chain: ChainSpec) -> Iterator[str]:
    """One line for each fault of a chain.

    Raises:
        ConfigError: `enable` is no expression.
    """
    if not (0 < chain.period_s < math.inf) or chain.window < 1:
        yield f"period of {chain.period_s:g} s and window of {chain.window} steps make no grid"
    elif not chain.gap_reset_s >= chain.period_s:
        yield f"gap_reset_s of {chain.gap_reset_s:g} s is shorter than a step of {chain.period_s:g} s"
    if not chain.max_lateness_s >= 0:
        yield f"max_lateness_s is {chain.max_lateness_s:g}"
    known = set(chain.signals())
    for spec in chain.derived:
        yield from derived_faults(spec)
        if spec.name in known:
            yield f"derived input '{spec.name}' exists already"
        later = [name for name in spec.sources if name not in known]
        if later:
            yield f"derived input '{spec.name}' uses '{later[0]}', which is derived after it"
        known.add(spec.name)
    for name in sorted(Enable(chain.enable).names - known):
        yield f"enable names '{name}', which is no signal of the model"
    for feature in chain.inputs:
        if feature.scaling.scale == 0 or not math.isfinite(feature.scaling.scale + feature.scaling.center):
            yield f"input '{feature.name}' is scaled by {feature.scaling.scale:g} around {feature.scaling.center:g}"
        for part in (*feature.source_filters, *feature.step_filters):
            fault = _filter_fault(part)
            if fault:
                yield f"{part.kind} of input '{feature.name}': {fault}"


def derived_faults(spec: DerivedSpec) -> Iterator[str]:
    """One line for each fault of a derived signal."""
    if len(spec.sources) != _SOURCES[spec.kind]:
        yield f"{spec.kind} '{spec.name}' takes {_SOURCES[spec.kind]} sources, not {len(spec.sources)}"
    if spec.kind == "counter" and spec.bits not in (16, 32, 64):
        yield f"counter '{spec.name}' has {spec.bits} bits, not 16, 32 or 64"
    if spec.kind == "bit_field" and not (spec.first_bit >= 0 and spec.bit_count >= 1 and spec.first_bit + spec.bit_count <= 64):
        yield f"bit field '{spec.name}' takes {spec.bit_count} bits from bit {spec.first_bit}"


def _filter_fault(spec: FilterSpec) -> str:
    if spec.kind in ("moving_mean", "median", "hampel") and spec.window < 1:
        return f"a window of {spec.window} samples"
    if spec.kind == "weighted_mean" and not (spec.weights and all(math.isfinite(weight) for weight in spec.weights)):
        return "weights are missing or not finite"
    if spec.kind == "weighted_mean" and sum(spec.weights) == 0:
        return "weights that sum to zero make no mean"
    if spec.kind == "ewma" and not 0 < spec.alpha <= 1:
        return f"alpha is {spec.alpha:g}, not in (0, 1]"
    if spec.kind == "hampel" and not spec.n_sigmas >= 0:
        return f"n_sigmas is {spec.n_sigmas:g}"
    if spec.kind == "rate_clip" and not spec.max_rate_per_s > 0:
        return f"max_rate_per_s is {spec.max_rate_per_s:g}"
    return ""
