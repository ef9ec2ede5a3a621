"""A network that takes records in their own units, and puts its inputs into standard ones."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Network
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class PublicUnits(Network):
    """``network`` behind (x − centre) / scale, with public constants for each entry of a record.

    They are no parameters: nothing is released of them. Clients of federated learning get them with
    the network.
    """

    network: Network
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        wanted = self.network.record_shape
        if not (len(self.centre),) == (len(self.scale),) == wanted:
            raise InputError(
                f"centre and scale need {wanted} entries, one per entry of a record, "
                f"got {len(self.centre)} and {len(self.scale)}"
            )
        if not min(self.scale) > 0:
            raise InputError(f"a scale must be positive, got {min(self.scale)}")

    @property
    def record_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of one record."""
        return self.network.record_shape

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The number of scores per record."""
        return self.network.outputs

    def build(self) -> nn.Module:
        """Return the affine map, then the network; names stay its own behind ``module.``."""
        import torch
        from torch import nn

        class Units(nn.Module):
            centre: torch.Tensor
            scale: torch.Tensor

            def __init__(self, centre: tuple[float, ...], scale: tuple[float, ...]) -> None:
                super().__init__()
                for name, values in (("centre", centre), ("scale", scale)):
                    exact = torch.tensor(values, dtype=torch.float64)
                    self.register_buffer(name, exact, persistent=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x - self.centre.to(x)) / self.scale.to(x)

        made: OrderedDict[str, nn.Module] = OrderedDict(units=Units(self.centre, self.scale))
        made["module"] = self.network.build()
        return nn.Sequential(made)

    def describe(self) -> str:
        """Return for example ``a 28-100-2 network (relu) of standardised inputs``."""
        return f"{self.network.describe()} of standardised inputs"
