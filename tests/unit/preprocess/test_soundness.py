"""A chain that cannot work is refused where it is built, with all its faults."""

import pytest

from gateway.core.errors import ConfigError
from preprocess.soundness import faults, verify
from preprocess.spec import ChainSpec, DerivedSpec, FilterSpec, InputSpec, ScalingSpec
from tests.unit.preprocess.feeds import chain_of


def with_filter(spec: FilterSpec) -> ChainSpec:
    return chain_of(inputs=(InputSpec(name="x", unit="1", source_filters=(spec,)),))


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        (chain_of(window=0), "make no grid"),
        (chain_of(period_s=float("nan")), "make no grid"),
        (chain_of(period_s=60.0), "shorter than a step"),
        (chain_of(max_lateness_s=-1.0), "max_lateness_s"),
        (chain_of(enable="nope > 1"), "'nope', which is no signal"),
        (chain_of(inputs=(InputSpec(name="x", unit="1", scaling=ScalingSpec(kind="standard", scale=0.0)),)), "scaled by 0"),
        (with_filter(FilterSpec(kind="median", window=0)), "window of 0"),
        (with_filter(FilterSpec(kind="weighted_mean")), "weights"),
        (with_filter(FilterSpec(kind="weighted_mean", weights=(1.0, -1.0))), "sum to zero"),
        (with_filter(FilterSpec(kind="ewma", alpha=0.0)), "alpha"),
        (with_filter(FilterSpec(kind="hampel", window=3, n_sigmas=float("nan"))), "n_sigmas"),
        (with_filter(FilterSpec(kind="rate_clip")), "max_rate_per_s"),
        (chain_of(derived=(DerivedSpec(name="d", kind="ratio", sources=("x",)),)), "takes 2 sources"),
        (chain_of(derived=(DerivedSpec(name="d", kind="counter", sources=("x",), bits=24),)), "24 bits"),
        (chain_of(derived=(DerivedSpec(name="d", kind="bit_field", sources=("x",), first_bit=60, bit_count=8),)), "8 bits from bit 60"),
        (
            chain_of(derived=(DerivedSpec(name="d", kind="rate", sources=("e",)), DerivedSpec(name="e", kind="rate", sources=("x",)))),
            "derived after it",
        ),
    ],
)
def test_a_fault_is_named(chain: ChainSpec, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        verify(chain)


def test_all_faults_are_told_at_once() -> None:
    chain = with_filter(FilterSpec(kind="ewma", alpha=2.0))

    assert list(faults(chain)) == ["ewma of input 'x': alpha is 2, not in (0, 1]"]
    assert len(list(faults(chain_of(window=0, max_lateness_s=-1.0, enable="y > z")))) == 4


def test_a_plain_chain_has_none() -> None:
    assert list(faults(chain_of(enable="x > 1", derived=(DerivedSpec(name="d", kind="rate", sources=("x",)),)))) == []
