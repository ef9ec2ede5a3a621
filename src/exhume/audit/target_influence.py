"""What a target does to its training: gradients of its own loss, followed step by step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from exhume.audit.plan import Plan
from exhume.audit.setting import ThreatSetting
from exhume.config import Config
from exhume.protocol.arrays import FloatArray
from exhume.protocol.seeds import stream
from exhume.training.answers import trained_model

if TYPE_CHECKING:
    from torch import Tensor

INFLUENCES = ("gradient-norm", "dead-gradients", "roughness")
"""Summed norm of the target's own gradient, the share of parameters it does not change (the mean
over steps), and the mean absolute difference of neighbouring pixels.
"""


def influence_of(plan: Plan, index: int, targets: Sequence[int]) -> dict[str, FloatArray]:
    """Return the targets' own numbers by name, (targets,); none if no network is trained."""
    if not plan.config.audit.influence:
        return {}
    rows = [_influence(plan.config, plan.files, plan.live, index, target) for target in targets]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(INFLUENCES))
    return {name: table[:, place] for place, name in enumerate(INFLUENCES)}


@lru_cache(maxsize=4096)
def _influence(
    config: Config, files: tuple[str, ...], live: tuple[ThreatSetting, ...], index: int, target: int
) -> tuple[float, float, float]:
    setting = Plan(config, (), files, live=live).setting(index)
    assert setting.targets is not None
    rough = roughness(np.asarray(setting.targets.x[target], dtype=np.float64))
    return (*followed(setting, target, config.audit.seed), rough)


def followed(setting: ThreatSetting, target: int, seed: int) -> tuple[float, float]:
    """Train with a target and return the sum of its gradient's norms, and the share of zeros.

    As in Balle et al. 2022, Figures 21 and 22; NaN if no network is trained with a fixed set.
    """
    from exhume.training import Training

    training = trained_model(setting.mechanism)
    if not isinstance(training, Training) or setting.batch is not None or setting.targets is None:
        return float("nan"), float("nan")
    objective, own = training.objective(), setting.targets.take([target])
    x, y = objective.tensor(own.x), objective.responses(training.responses(own.labels))
    norms, zeros = [], []

    def watch(theta: Tensor) -> None:
        gradient = objective.gradient(theta, x, y, count=1)
        norms.append(float(gradient.norm()))
        zeros.append(float((gradient == 0).double().mean()))

    rng = stream(seed, "training", setting.name, target)
    training.run(objective, setting.fixed_set.with_record(own), rng=rng, watch=watch)
    return float(np.sum(norms)), float(np.mean(zeros))


def roughness(image: FloatArray) -> float:
    """Return the mean absolute difference of neighbouring pixels; 0 if it is not an image.

    >>> roughness(np.array([[0.0, 1.0], [0.0, 1.0]]))
    0.5
    """
    if image.ndim < 2:
        return 0.0
    steps = [np.abs(np.diff(image, axis=axis)).mean() for axis in (0, 1)]
    return float(np.mean(steps))
