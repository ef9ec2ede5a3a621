"""A threat model in words, from the objects that it is made of."""

from __future__ import annotations

import numpy as np

from exhume.audit.setting import Setting
from exhume.defences.base import Defence
from exhume.mechanism import Mechanism
from exhume.release import Answer, Outputs
from exhume.training import Answers, Model, Training
from exhume.training.answers import trained_model
from exhume.training.gradient import Aggregate, GradientStep, LocalSteps, described, gradient_step

_ANSWERS = {
    Answer.SCORES: "raw scores",
    Answer.PROBABILITIES: "class probabilities",
    Answer.MEANS: "predictions",
}


def threat_model(setting: Setting) -> tuple[str, ...]:
    """Return sentences: what is released, what protects it, what the adversary knows and wants."""
    sentences = [f"Released: {_released(setting)}.", _about_records(setting)]
    sentences += _about_start(setting)
    if setting.shadow_targets is not None:
        sentences.append(f"It also has {len(setting.shadow_targets):,} records like the target.")
    sentences.append(_about_target(setting))
    wanted = "the one record" if setting.batch in (None, 1) else f"the {setting.batch} records"
    sentences.append(f"It wants {wanted} that it does not have.")
    return tuple(sentences)


def _released(setting: Setting) -> str:
    parts: list[str] = []
    mechanism: Mechanism = setting.mechanism
    while not isinstance(mechanism, Model):
        if isinstance(mechanism, Defence):
            parts.append(mechanism.describe())
        elif isinstance(mechanism, Answers):
            count = len(mechanism.queries)
            if isinstance(setting.given, Outputs):
                count = len(setting.given.queries)
            parts.append(f"only {_ANSWERS[mechanism.answer]} on {count:,} queries")
        elif isinstance(mechanism, GradientStep | LocalSteps | Aggregate):
            return ", ".join([described(mechanism), *reversed(parts)])
        else:
            return f"what {type(mechanism).__name__} publishes"
        mechanism = mechanism.inner
    text = f"the weights of {mechanism.describe()}"
    return ", ".join([text, *reversed(parts)])


def _about_records(setting: Setting) -> str:
    shape = " × ".join(map(str, setting.fixed_set.record_shape))
    if setting.batch is not None:
        count = "one record" if setting.batch == 1 else f"a batch of {setting.batch} records"
        if gradient_step(setting.mechanism) is None:
            return (
                f"It was trained on {setting.batch:,} records ({shape} values each), none of which "
                "the adversary has; it knows the training algorithm with its settings."
            )
        return (
            f"It is about {count} ({shape} values each); the adversary knows the network and the "
            "parameters at which it was taken."
        )
    return (
        f"The adversary has all {len(setting.fixed_set):,} other training records ({shape} values "
        "each) with their labels, and knows the training algorithm with its settings."
    )


def _about_start(setting: Setting) -> list[str]:
    """What it knows of the random choices of a network's training."""
    model = trained_model(setting.mechanism)
    if not isinstance(model, Training):
        return []
    start = model.initial.known or setting.initial is not None
    sentences = [
        "It knows the parameters that training started from."
        if start
        else "It does not know the parameters that training started from."
    ]
    if model.batches is not None and not model.batches.known:
        sentences.append("It does not know the order of the mini-batches.")
    return sentences


def _about_target(setting: Setting) -> str:
    known, several = [], setting.batch not in (None, 1)
    if setting.knows_labels:
        known.append("the labels" if several else "its label")
    if setting.knows_statistics:
        known.append("the statistics of its normalisation layers")
    if setting.known_columns:
        total = int(np.prod(setting.fixed_set.record_shape))
        known.append(f"{len(setting.known_columns)} of its {total} values")
    if not known:
        return "Of the target it knows nothing, not even the label."
    return f"Of {'them' if several else 'the target'} it knows {' and '.join(known)}."
