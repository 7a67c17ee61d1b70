"""Checks at the door: what is accepted, and messages that name argument, value and range."""

import decimal
import fractions
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dvrenyi_plugin._internal.validation import (
    check_choice,
    check_delta,
    check_epsilon,
    check_failure_probability,
    check_int,
    check_lower_bound,
    check_order,
    check_real,
    check_sample_pair,
    check_samples,
    check_seed,
)


class TestNumbers:
    @pytest.mark.parametrize("value", [-1.0, 0.0, 1.0, math.nan, math.inf, None, "0.05", True, 1j])
    def test_failure_probability(self, value):
        with pytest.raises(ValueError) as error:
            check_failure_probability(value)
        assert "failure_probability" in str(error.value)
        assert repr(value) in str(error.value)
        assert "> 0 and < 1" in str(error.value)

    @pytest.mark.parametrize("value", [1.0, 0.5, -3, math.nan, math.inf, -math.inf])
    def test_order(self, value):
        with pytest.raises(ValueError, match=r"alpha must be a finite number > 1, got"):
            check_order(value)

    @pytest.mark.parametrize("value", [-1e-300, math.nan, math.inf])
    def test_epsilon(self, value):
        with pytest.raises(ValueError, match=r"epsilon must be a finite number >= 0, got"):
            check_epsilon(value)
        assert check_epsilon(0) == 0.0  # a legal claim

    @pytest.mark.parametrize("value", [-0.1, 1.5, math.nan])
    def test_delta(self, value):
        with pytest.raises(ValueError, match=r"delta must be a finite number >= 0 and <= 1, got"):
            check_delta(value)
        assert (check_delta(0), check_delta(1)) == (0.0, 1.0)

    @pytest.mark.parametrize(
        "value", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), fractions.Fraction(4, 2)]
    )
    def test_every_kind_of_real_number_becomes_a_float(self, value):
        checked = check_real("x", value)
        assert type(checked) is float
        assert checked == 2.0

    @pytest.mark.parametrize(
        "value", [True, np.True_, np.array([2.0]), [2.0], "2", None, 10**400, decimal.Decimal(2)]
    )
    def test_what_is_no_real_number(self, value):
        with pytest.raises(ValueError, match="x must be a finite number, got"):
            check_real("x", value)

    @given(st.floats(-10, 10), st.floats(-5, 5))
    def test_limits_are_what_they_say(self, value, limit):
        for keyword, inside in (
            ("above", value > limit),
            ("at_least", value >= limit),
            ("below", value < limit),
            ("at_most", value <= limit),
        ):
            if inside:
                assert check_real("x", value, **{keyword: limit}) == value
            else:
                with pytest.raises(ValueError, match="x must be"):
                    check_real("x", value, **{keyword: limit})

    def test_integers(self):
        assert check_int("n", np.int64(3), at_least=3, at_most=3) == 3
        assert type(check_int("n", np.uint8(3))) is int
        for bad in (3.0, 2.9999, True, "3", None, math.nan, 1 / (1 / 93)):
            with pytest.raises(ValueError, match="n must be an integer, got"):
                check_int("n", bad)
        with pytest.raises(ValueError, match="n must be an integer >= 1 and <= 5, got 6"):
            check_int("n", 6, at_least=1, at_most=5)
        with pytest.raises(ValueError, match="seed must be an integer >= 0, got -1"):
            check_seed(-1)

    def test_lower_bound_may_be_anything_but_nan(self):
        assert check_lower_bound(math.inf) == math.inf
        assert check_lower_bound(-0.5) == -0.5
        assert check_lower_bound(np.float64(0.5)) == 0.5
        for bad in (math.nan, -math.inf, None, "0.5"):
            with pytest.raises(ValueError, match="lower_bound"):
                check_lower_bound(bad)

    def test_choice(self):
        assert check_choice("side", "left", ("left", "right")) == "left"
        for bad in ("up", 1, None, ["left"]):
            with pytest.raises(ValueError, match="side must be one of left, right, got"):
                check_choice("side", bad, ("left", "right"))


class TestSamples:
    @pytest.mark.parametrize(
        "dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.int64, np.uint64]
    )
    def test_dtypes_and_ranks(self, dtype):
        flat = np.array([1, 2, 3], dtype=dtype)
        for given_samples in (flat, flat[:, np.newaxis], flat.tolist(), [[1], [2], [3]]):
            checked = check_samples("s", given_samples)
            assert checked.shape == (3, 1)
            assert checked.dtype == np.float64
            assert checked[:, 0].tolist() == [1.0, 2.0, 3.0]

    @given(
        arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e300, 1e300))
    )
    def test_result_is_an_equal_and_separate_contiguous_copy(self, array):
        array.setflags(write=False)
        checked = check_samples("s", array, min_samples=1)
        assert (checked == array).all()
        assert not np.shares_memory(checked, array)
        assert checked.flags["C_CONTIGUOUS"] and checked.flags["WRITEABLE"]

    def test_views_with_odd_strides(self):
        base = np.arange(24.0).reshape(6, 4)
        assert check_samples("s", base[::-2, ::3]).tolist() == base[::-2, ::3].tolist()
        assert check_samples("s", np.asfortranarray(base)).flags["C_CONTIGUOUS"]

    def test_not_a_number_is_counted_and_located(self):
        samples = np.arange(100.0)
        samples[50:] = np.nan
        with pytest.raises(
            ValueError, match=r"s must be finite, got 50 NaN .* 50 of 100 .* index 50"
        ):
            check_samples("s", samples)
        wide = np.zeros((10, 3))
        wide[4, 1] = np.inf
        wide[4, 2] = -np.inf
        with pytest.raises(
            ValueError, match=r"got 2 NaN or infinite entries in 1 of 10 .* index 4"
        ):
            check_samples("s", wide)

    @pytest.mark.parametrize(
        ("samples", "message"),
        [
            ([], "at least 2 samples, got 0"),
            ([1.0], "at least 2 samples, got 1"),
            (np.zeros((0, 3)), "at least 2 samples, got 0"),
            (np.zeros((5, 0)), "at least one column"),
            (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
            (3.0, r"shape \(\)"),
            (["a", "b"], "dtype"),
            ([None, None], "dtype object"),
            ([True, False], "dtype bool"),
            (np.zeros(3, dtype=complex), "dtype complex"),
            ([[1.0, 2.0], [3.0]], "must be an array"),
            (np.array(["2020-01-01"] * 3, dtype="datetime64[D]"), "dtype datetime64"),
            ([10**30, 1], "dtype object"),
            (np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]), "masked"),
        ],
    )
    def test_refused_with_a_reason(self, samples, message):
        with pytest.raises(ValueError, match=message) as error:
            check_samples("samples1", samples)
        assert "samples1" in str(error.value)

    def test_unmasked_masked_array_is_an_array(self):
        assert check_samples("s", np.ma.masked_array([1.0, 2.0])).tolist() == [[1.0], [2.0]]

    def test_min_samples(self):
        assert check_samples("s", [1.0], min_samples=1).shape == (1, 1)
        with pytest.raises(ValueError, match="at least 4 samples, got 3"):
            check_samples("s", [1, 2, 3], min_samples=4)

    def test_pairs(self):
        first, second = check_sample_pair(np.zeros(500), np.zeros((400, 1)))
        assert (first.shape, second.shape) == ((500, 1), (400, 1))
        with pytest.raises(ValueError, match=r"columns, got shapes \(5, 1\) and \(5, 2\)"):
            check_sample_pair(np.zeros((5, 1)), np.zeros((5, 2)))
        with pytest.raises(ValueError, match=r"columns, got shapes \(5,\) and \(5, 2\)"):
            check_sample_pair(np.zeros(5), np.zeros((5, 2)))
        with pytest.raises(ValueError, match="samples2 must have at least 2"):
            check_sample_pair([1, 2], [1])


def test_limits_of_what_can_be_computed_with():
    for check, value in ((check_order, 1e101), (check_failure_probability, 1e-310)):
        with pytest.raises(ValueError, match=r"must be a finite number"):
            check(value)
    assert check_int("n", 2**63 - 1) == 2**63 - 1
    with pytest.raises(ValueError, match=r"n must be an integer >= 1, below 2\*\*63"):
        check_int("n", 10**400, at_least=1)
