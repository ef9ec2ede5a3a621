"""Networks as users write them: functions that return a module of 6 × 6 records, 3 classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

OWN = "tests.contract.own_networks"


def channels_first() -> nn.Module:
    """Take records (1, 6, 6), as a convolution does."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 3)
    )


def batch_norm() -> nn.Module:
    """Take records (1, 6, 6) through two normalisations, one of which averages all batches."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.BatchNorm2d(3),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(48, 5, bias=False),
        nn.BatchNorm1d(5, momentum=None),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


def dropout() -> nn.Module:
    """Drop some units in training."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3)
    )


def dropout_in_a_function() -> nn.Module:
    """Drop some units where no module shows it."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(36, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.tanh(self.first(x.flatten(1)))
            return self.second(nn.functional.dropout(hidden, 0.3, self.training))

    return Net()


def both() -> nn.Module:
    """Normalise by the batch, then drop."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(36, 8),
        nn.BatchNorm1d(8),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(8, 3),
    )


def normalised_at_once() -> nn.Module:
    """Normalise what the first layer gives."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    )


def normalised_further_on() -> nn.Module:
    """Normalise behind the second layer."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 5)),
        *(nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)),
    )


class _Tied(nn.Module):
    """One matrix is used twice, forwards and transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(36, 8), nn.Linear(36, 8), nn.Linear(8, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        back = torch.tanh(self.first(flat)) @ self.first.weight
        return self.head(torch.tanh(self.second(back)))


def tied() -> nn.Module:
    """Share one weight between two layers."""
    return _Tied()


class _Block(nn.Module):
    """Six rows of six pixels as tokens, one block of attention, and the mean of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.place = nn.Parameter(torch.zeros(6, 8))
        self.block = nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, activation="gelu", batch_first=True
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(len(x), 6, 6)) + self.place
        return self.head(self.block(tokens).mean(dim=1))


def transformer() -> nn.Module:
    """Attend over the rows of a record."""
    return _Block()
