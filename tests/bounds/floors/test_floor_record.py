"""What a floor is: its value, its unit, whom it binds."""

import math

import pytest

from exhume.bounds.floors import ErrorUnit, Floor, FloorBinds
from exhume.protocol.errors import InputError


def make(value, **fields):
    settings = {"unit": ErrorUnit.MSE, "method": "by hand", "binds": FloorBinds.UNBIASED} | fields
    return Floor(value=value, **settings)


@pytest.mark.parametrize("value", [-1e-12, math.nan])
def test_a_negative_floor_or_nan_is_refused(value):
    with pytest.raises(InputError, match="at least 0"):
        make(value)


def test_text_says_whom_it_binds():
    assert str(make(0.25)) == (
        "mean squared error per coordinate ≥ 0.25, unbiased attacks only (by hand)"
    )
    assert "all attacks" in str(make(0.25, binds=FloorBinds.ALL))
    assert "± 0.01" in str(make(0.25, standard_error=0.01))


def test_root_by_the_delta_method():
    root = make(0.25, standard_error=0.01, identifiable_value=0.16, shortfall=0.2).root()
    assert root.unit is ErrorUnit.RMSE
    assert root.value == 0.5
    assert root.standard_error == pytest.approx(0.01)
    assert root.identifiable_value == pytest.approx(0.4)
    assert root.shortfall == pytest.approx(0.1)
    assert root.binds is FloorBinds.UNBIASED
    assert make(math.inf).root().value == math.inf
    with pytest.raises(InputError, match="mean squared error"):
        root.root()


def test_relative_to_the_records_mean_square():
    relative = make(0.25, standard_error=0.01).relative_to(0.5)
    assert (relative.value, relative.standard_error) == (0.5, 0.02)
    assert relative.unit is ErrorUnit.RELATIVE_MSE
    with pytest.raises(InputError, match="mean_square"):
        make(0.25).relative_to(0.0)
    with pytest.raises(InputError, match="relative"):
        relative.relative_to(0.5)


def test_lower_limit():
    assert make(0.25).lower_limit() == 0.25
    assert make(math.inf, standard_error=1.0).lower_limit() == math.inf
    # 1.959964 is the normal distribution's .975 quantile.
    assert make(2.0, standard_error=0.1).lower_limit() == pytest.approx(2 - 0.1959964, abs=1e-7)
    assert make(0.1, standard_error=1.0).lower_limit() == 0.0
    with pytest.raises(InputError, match="confidence"):
        make(1.0).lower_limit(1.0)
