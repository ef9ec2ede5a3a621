"""How much better a released model knows its training records than others: the usual signs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.audit.setting import Setting
from exhume.defences.base import undefended
from exhume.records import Records
from exhume.release import Weights
from exhume.training import Model

_MOST_RECORDS = 2000


@dataclass(frozen=True)
class Overfitting:
    """Accuracy (or R²) on training records and on others, and how well losses tell them apart.

    ``loss_auc`` is the chance that a training record has a smaller loss than another record: the
    membership test that needs nothing but the model (Yeom et al. 2018), as in Balle et al. 2022,
    Table IX. It asks about any training record, not about the target alone.
    """

    name: str = ""
    utility: float | None = None
    training_utility: float | None = None
    loss_auc: float | None = None


def overfitting(setting: Setting, releases: int, seed: int) -> Overfitting:
    """Measure the first few released models of a setting; nothing where there is no reserve."""
    from exhume.membership.auc import auc_interval

    model, reserve = undefended(setting.mechanism), setting.reserve
    if not isinstance(model, Model) or reserve is None or setting.given is not None:
        return Overfitting()
    groups = setting.groups(range(min(releases, setting.size)))
    found = [r for r in setting.releases(groups, seed) if isinstance(r, Weights)]
    if not found:
        return Overfitting()
    name = "accuracy" if model.classes is not None else "R²"
    utility = float(np.mean([model.score(release, reserve) for release in found]))
    if setting.batch is not None:
        return Overfitting(name, utility)
    inside, outside = (_some(part) for part in (setting.fixed_set, reserve))
    auc = [
        auc_interval(-_losses(model, release, inside), -_losses(model, release, outside)).estimate
        for release in found
    ]
    own = float(np.mean([model.score(release, setting.fixed_set) for release in found]))
    return Overfitting(name, utility, own, float(np.mean(auc)))


def _some(records: Records) -> Records:
    return records.take(np.arange(min(len(records), _MOST_RECORDS)))


def _losses(model: Model, release: Weights, records: Records) -> FloatArray:
    """Return every record's loss: cross-entropy, or squared error."""
    means = model.means(model.scores(release, records.x))
    if model.classes is None:
        found = np.square(np.asarray(records.labels, dtype=np.float64) - means[:, 0])
        return np.asarray(found)
    place = {label: i for i, label in enumerate(model.classes)}
    columns = [place.get(label, -1) for label in records.labels.tolist()]
    chosen = means[np.arange(len(means)), columns]
    return np.asarray(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)))
