"""A regression on a table: an MLP with dropout, trained by SGD with warm-up. Nothing of Exhume."""

import torch
from torch import nn
from torch.nn import functional


def train(x, y, *, seed: int, epochs: int = 60) -> nn.Module:
    """Train on rows (n, columns) and a number per row."""
    torch.manual_seed(seed)
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)
    y = (y - y.mean()) / y.std()
    net = nn.Sequential(
        nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Dropout(0.05), nn.Linear(32, 1), nn.Flatten(0)
    )
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 0.1, total_iters=10)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            functional.mse_loss(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    return net.eval()
