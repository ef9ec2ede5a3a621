"""Training loops that import nothing of ours, as users have them."""

from __future__ import annotations

import torch
from torch import nn


def _fit(net: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int = 6) -> nn.Module:
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    return net


def convolutional(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A channels-first CNN with BatchNorm and dropout, on images without a channel axis."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(4 * 36, 10),
    )
    return _fit(net, torch.as_tensor(x, dtype=torch.float32).unsqueeze(1), torch.as_tensor(y))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))


def state_dict(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A loop that returns a state dict; its architecture is ``mlp``."""
    torch.manual_seed(seed)
    found = _fit(mlp(), torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))
    return found.state_dict()


def forgetful(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A loop that never uses its seed."""
    return _fit(mlp(), torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))


def halves(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A loop in a precision that NumPy lacks."""
    return mlp().to(torch.bfloat16)


def probabilities(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A network whose answers are probabilities."""
    torch.manual_seed(0)
    return nn.Sequential(mlp(), nn.Softmax(dim=1))


def regression(x, y, *, seed):  # type: ignore[no-untyped-def]
    """A loop for a number to predict; its network squeezes the answers."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(x.shape[1], 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimiser.step()
    return net


def broken(x, y, *, seed):  # type: ignore[no-untyped-def]
    raise KeyError("the learning rate")


def diverged(x, y, *, seed):  # type: ignore[no-untyped-def]
    return {"weight": torch.tensor([float("nan")])}


def nothing(x, y, *, seed):  # type: ignore[no-untyped-def]
    return 3


not_a_function = 3
