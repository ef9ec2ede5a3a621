"""A network behind public constants that put its inputs into standard units."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.attacks.gradients.analytic.input_layer import InputLayer, input_layer_of
from exhume.models import MLP, Activation
from exhume.models.base import under_own_names
from exhume.models.public_units import PublicUnits
from exhume.protocol.errors import InputError

INNER = MLP((2,), 3, (4,), Activation.RELU)
PUBLIC = PublicUnits(INNER, (10.0, 0.0), (2.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_are_centred_and_scaled_in_any_precision(dtype: torch.dtype) -> None:
    module = PUBLIC.module().to(dtype)
    x = torch.tensor([[14.0, 1.0]], dtype=dtype)
    inner = module.get_submodule("module")
    torch.testing.assert_close(module(x), inner(torch.tensor([[2.0, 1.0]], dtype=dtype)))


def test_the_constants_are_no_parameters_and_names_stay_the_networks() -> None:
    assert PUBLIC.buffer_names() == ()
    shapes, own = PUBLIC.parameter_shapes(), INNER.parameter_shapes()
    assert list(shapes.values()) == list(own.values())
    assert set(under_own_names(shapes, own)) == set(shapes)
    assert (PUBLIC.record_shape, PUBLIC.outputs) == ((2,), 3)


def test_attacks_on_the_first_layer_read_records_in_their_own_units() -> None:
    layer = input_layer_of(PUBLIC)
    assert isinstance(layer, InputLayer)
    np.testing.assert_allclose(layer.records(np.array([[2.0, 1.0]])), [[14.0, 1.0]])


def test_wrong_constants_are_refused() -> None:
    with pytest.raises(InputError, match="centre and scale need"):
        PublicUnits(INNER, (0.0,), (1.0,))
    with pytest.raises(InputError, match="a scale must be positive, got 0"):
        PublicUnits(INNER, (0.0, 0.0), (1.0, 0.0))
