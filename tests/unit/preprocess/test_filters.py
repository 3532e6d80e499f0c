"""Each filter equals its textbook batch form, column by column, whatever the gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import signal

from preprocess.filters import FilterBank, Mask, Values
from preprocess.spec import FilterSpec

series = hnp.arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=st.floats(-1e6, 1e6))


def run(spec: FilterSpec, samples: Values, mask: Mask | None = None) -> Values:
    bank = FilterBank([[spec]] * samples.shape[1])
    present = np.ones(samples.shape, np.bool_) if mask is None else mask
    return np.stack([bank.update(i * 1_000_000_000, row, present[i]) for i, row in enumerate(samples)])


def windowed(samples: Values, window: int, row: int) -> Values:
    return samples[max(0, row - window + 1) : row + 1]


@settings(max_examples=60)
@given(series, st.integers(1, 9))
def test_moving_mean_is_the_mean_of_the_window(samples: Values, window: int) -> None:
    expected = np.stack([windowed(samples, window, i).mean(axis=0) for i in range(len(samples))])

    assert run(FilterSpec(kind="moving_mean", window=window), samples) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@settings(max_examples=60)
@given(series, st.integers(1, 9))
def test_median_is_the_median_of_the_window(samples: Values, window: int) -> None:
    expected = np.stack([np.median(windowed(samples, window, i), axis=0) for i in range(len(samples))])

    assert run(FilterSpec(kind="median", window=window), samples) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@settings(max_examples=60)
@given(series, st.integers(0, 4))
def test_median_agrees_with_scipy_where_its_window_is_full(samples: Values, half: int) -> None:
    window = 2 * half + 1
    if len(samples) < window:
        return
    ours = run(FilterSpec(kind="median", window=window), samples)[window - 1 :]
    theirs = np.stack([signal.medfilt(column, window) for column in samples.T], axis=1)

    assert ours == pytest.approx(theirs[half : len(samples) - half], rel=1e-12, abs=1e-9)


@settings(max_examples=60)
@given(series, st.floats(0.01, 1.0))
def test_ewma_is_scipys_first_order_filter(samples: Values, alpha: float) -> None:
    start = (1 - alpha) * samples[:1]
    expected, _ = signal.lfilter([alpha], [1, alpha - 1], samples, axis=0, zi=start)

    assert run(FilterSpec(kind="ewma", alpha=alpha), samples) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@settings(max_examples=60)
@given(series, st.lists(st.floats(0.1, 5), min_size=1, max_size=6))
def test_weighted_mean_is_a_normalised_convolution_where_its_window_is_full(samples: Values, weights: list[float]) -> None:
    ours = run(FilterSpec(kind="weighted_mean", weights=tuple(weights)), samples)[len(weights) - 1 :]
    if len(samples) < len(weights):
        return
    kernel = np.array(weights[::-1]) / sum(weights)
    expected = np.stack([np.convolve(column, kernel, "valid") for column in samples.T], axis=1)

    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-4)


@settings(max_examples=60)
@given(series, st.integers(1, 7), st.floats(0.5, 4))
def test_hampel_replaces_what_lies_beyond_its_scaled_deviations(samples: Values, window: int, n_sigmas: float) -> None:
    expected = samples.copy()
    for i in range(len(samples)):
        part = windowed(samples, window, i)
        median = np.median(part, axis=0)
        spread = 1.4826 * np.median(np.abs(part - median), axis=0)
        outlier = np.abs(samples[i] - median) > n_sigmas * spread
        expected[i] = np.where(outlier, median, samples[i])

    assert run(FilterSpec(kind="hampel", window=window, n_sigmas=n_sigmas), samples) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(series, st.floats(0.1, 1e5))
def test_rate_clip_never_moves_faster_than_allowed_and_passes_slow_signals(samples: Values, rate: float) -> None:
    out = run(FilterSpec(kind="rate_clip", max_rate_per_s=rate), samples)

    assert (np.abs(np.diff(out, axis=0)) <= rate * (1 + 1e-9) + 1e-9).all()
    slow = np.clip(samples, -rate / 2, rate / 2)
    assert run(FilterSpec(kind="rate_clip", max_rate_per_s=rate), slow) == pytest.approx(slow)


@settings(max_examples=40)
@given(series, st.data())
def test_a_column_without_a_sample_keeps_its_state_as_if_it_had_not_been_called(samples: Values, data: st.DataObject) -> None:
    mask = data.draw(hnp.arrays(np.bool_, samples.shape))
    spec = FilterSpec(kind="median", window=3)
    ours = run(spec, samples, mask)
    for column in range(samples.shape[1]):
        present = mask[:, column]
        alone = run(spec, samples[present, column : column + 1]) if present.any() else np.empty((0, 1))
        assert ours[present, column] == pytest.approx(alone[:, 0])


def test_a_constant_channel_stays_exactly_constant() -> None:
    constant = np.full((50, 2), 0.1)
    for spec in (FilterSpec(kind="median", window=5), FilterSpec(kind="hampel", window=5), FilterSpec(kind="ewma", alpha=0.3)):
        assert (run(spec, constant) == 0.1).all()


def test_filters_run_in_the_declared_order_and_forget_on_reset() -> None:
    bank = FilterBank([[FilterSpec(kind="hampel", window=3), FilterSpec(kind="moving_mean", window=2)]])
    mask = np.array([True])
    first = [float(bank.update(i, np.array([value]), mask)[0]) for i, value in enumerate([1.0, 1.0, 100.0])]
    bank.reset()

    assert first == [1.0, 1.0, 1.0]
    assert bank.update(0, np.array([5.0]), mask)[0] == 5.0
