"""A training loop as one writes it: a small CNN, AdamW, cosine schedule, augmentation, early stop.

Nothing in this file knows that it will be audited.
"""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """Two convolutions with batch normalisation, then dropout and a linear layer."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(256, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of images (n, 1, 8, 8)."""
        return self.head(self.features(x))


def train(x, y, *, seed: int, epochs: int = 12) -> nn.Module:
    """Train on images (n, 8, 8) and labels (n,); the last tenth of them decides when to stop."""
    torch.manual_seed(seed)
    x, y = torch.as_tensor(x, dtype=torch.float32).unsqueeze(1), torch.as_tensor(y)
    order = torch.randperm(len(x))
    held, own = order[: len(x) // 10], order[len(x) // 10 :]
    net = Net()
    optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    best, patience = float("inf"), 3
    for _ in range(epochs):
        net.train()
        for batch in own[torch.randperm(len(own))].split(32):
            images = x[batch]
            if torch.rand(()) < 0.5:
                images = images.roll(1, dims=3)  # shifts by one pixel
            optimiser.zero_grad()
            functional.cross_entropy(net(images), y[batch]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
        schedule.step()
        net.eval()
        with torch.no_grad():
            loss = functional.cross_entropy(net(x[held]), y[held]).item()
        best, patience = (loss, 3) if loss < best else (best, patience - 1)
        if patience == 0:
            break
    return net
