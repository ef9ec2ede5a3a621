"""Reconstruction and membership risk for each epsilon, for the same training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.bounds.closed_form import approximate_dp
from exhume.bounds.event import dp_sgd, privacy_loss
from exhume.bounds.membership import membership_risk
from exhume.bounds.privacy_loss import PrivacyLoss
from exhume.protocol.errors import ExhumeError

DELTA = 1e-5
KAPPAS = (0.1, 0.01, 0.001, 1e-6)
_COLOURS = ("#08306b", "#2171b5", "#4aa3c7", "#74a94f")


@dataclass(frozen=True)
class TrainingExample:
    """A way of training with DP-SGD: records, expected batch, noise multiplier, steps."""

    name: str
    records: int
    batch: int
    noise_multiplier: float
    steps: int

    @property
    def loss(self) -> PrivacyLoss:
        """Its privacy-loss distribution."""
        return _loss(self.noise_multiplier, self.batch / self.records, self.steps)


SETTINGS = (
    TrainingExample("strong noise", 60_000, 256, 4.0, 14_063),
    TrainingExample("small images, 60 epochs", 60_000, 256, 1.1, 14_063),
    TrainingExample("small images, 15 epochs", 60_000, 250, 1.3, 3_600),
    TrainingExample("large batches", 50_000, 4_096, 3.0, 2_500),
    TrainingExample("fine-tuning, 10 epochs", 50_000, 1_000, 1.0, 500),
    TrainingExample("federated, 1,000 clients", 1_000, 100, 1.0, 100),
    TrainingExample("weak noise", 60_000, 256, 0.5, 4_688),
    TrainingExample("token noise", 60_000, 256, 0.3, 4_688),
)


EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SAMPLE_RATE, STEPS = 0.01, 1000
"""The training of the figure and of the table by epsilon; only its noise varies."""


def epsilon_table() -> str:
    """Ceilings by epsilon as Markdown: the mechanism's own, and from (epsilon, delta) alone."""
    kappas = " | ".join(f"κ={kappa:g}" for kappa in KAPPAS)
    head = f"| ε | σ | {kappas} | TPR at 1 % FPR | balanced accuracy |"
    rule = "|" + "---:|" * (head.count("|") - 1)
    return "\n".join([head, rule, *(_epsilon_row(epsilon) for epsilon in EPSILONS)])


def settings_table() -> str:
    """The settings with their epsilon, their ceilings, and membership risk, as Markdown."""
    kappas = " | ".join(f"γ, κ={kappa:g}" for kappa in KAPPAS)
    head = f"| training | q | σ | T | ε | {kappas} | TPR at 1 % FPR | balanced accuracy |"
    rule = "|---|" + "---:|" * (head.count("|") - 2)
    return "\n".join([head, rule, *(_row(setting) for setting in SETTINGS)])


def draw(out: Path) -> None:
    """Write the figure as SVG, the same bytes every time: γ against ε as the noise shrinks.

    One training, noise multipliers from 20 down to 0.3.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    noises = np.geomspace(20.0, 0.3, 30)
    losses = [_loss(float(noise), SAMPLE_RATE, STEPS) for noise in noises]
    epsilons = np.array([loss.epsilon(DELTA) for loss in losses])
    with mpl.rc_context({"svg.hashsalt": "exhume", "svg.fonttype": "none", "path.snap": False}):
        canvas = FigureCanvasSVG(Figure(figsize=(7.0, 4.2), layout="constrained"))
        axes = canvas.figure.add_subplot()
        for kappa, colour in zip(KAPPAS, _COLOURS, strict=True):
            gammas = np.array([float(loss.gamma(kappa)) for loss in losses])
            axes.plot(epsilons, gammas, color=colour, label=f"reconstruction, κ = {kappa:g}")
        advantages = np.array([membership_risk(loss).advantage for loss in losses])
        axes.plot(epsilons, advantages, "--", color="#cb181d", label="membership advantage")
        axes.set(
            xscale="log",
            xlim=(epsilons.min(), epsilons.max()),
            ylim=(0.0, 1.0),
            xlabel=f"ε at δ = {DELTA:g}  (q = 0.01, 1,000 steps, noise multiplier 20 to 0.3)",
            ylabel="no attack succeeds more often than",
        )
        ticks = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks((), minor=True)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(frameon=False, loc="upper left")
        canvas.print_figure(out, format="svg", metadata={"Date": None, "Creator": "exhume"})


def _epsilon_row(epsilon: float) -> str:
    from scipy.optimize import brentq

    def excess(log_noise: float) -> float:
        return _loss(math.exp(log_noise), SAMPLE_RATE, STEPS).epsilon(DELTA) - epsilon

    noise = math.exp(brentq(excess, math.log(0.2), math.log(40.0), xtol=1e-4))
    loss = _loss(noise, SAMPLE_RATE, STEPS)
    risk = membership_risk(loss)
    pairs = [(float(loss.gamma(k)), approximate_dp(epsilon, DELTA, k)) for k in KAPPAS]
    cells = [
        f"{epsilon:g}",
        f"{noise:.3g}",
        *(f"{gamma:.3g} ({alone:.3g})" for gamma, alone in pairs),
        f"{risk.true_positive_rate:.3g}",
        f"{risk.balanced_accuracy:.3g}",
    ]
    return "| " + " | ".join(cells) + " |"


def _row(setting: TrainingExample) -> str:
    loss = setting.loss
    risk = membership_risk(loss)
    cells = [
        setting.name,
        f"{setting.batch / setting.records:.3g}",
        f"{setting.noise_multiplier:g}",
        f"{setting.steps:,}",
        f"{loss.epsilon(DELTA):.2f}",
        *(f"{float(loss.gamma(kappa)):.3g}" for kappa in KAPPAS),
        f"{risk.true_positive_rate:.3g}",
        f"{risk.balanced_accuracy:.3g}",
    ]
    return "| " + " | ".join(cells) + " |"


def _loss(noise_multiplier: float, sample_rate: float, steps: int) -> PrivacyLoss:
    found = privacy_loss(dp_sgd(noise_multiplier, sample_rate, steps))
    if found is None:
        raise ExhumeError("no noise: there is no privacy-loss distribution to draw")
    return found
