"""A threat model in words, from its objects."""

from __future__ import annotations

import numpy as np

from exhume.audit.setting import ThreatSetting
from exhume.protocol.defence import Defence
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.release import Answer, Outputs
from exhume.training import Answers, Loop, Model, Recorded, Training
from exhume.training.answers import trained_model
from exhume.training.estimator import Estimator
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps, described
from exhume.training.recorded import RecordedElsewhere, RecordedTraining

_ANSWERS = {
    Answer.SCORES: "raw scores",
    Answer.PROBABILITIES: "class probabilities",
    Answer.MEANS: "predictions",
}


_KNOWN_PARTS = (
    "It knows which of the other records took part in each step, not when the target did."
)


def threat_model(setting: ThreatSetting) -> tuple[str, ...]:
    """Return sentences: the release, its protection, the adversary's knowledge and goal."""
    sentences = [f"Released: {_released(setting)}.", _about_records(setting)]
    sentences += [setting.origin] if setting.origin else []
    sentences += _about_start(setting)
    if setting.shadow_targets is not None:
        sentences.append(f"It also has {len(setting.shadow_targets):,} records like the target.")
    sentences.append(_about_target(setting))
    wanted = "the one record" if setting.batch in (None, 1) else f"the {setting.batch} records"
    sentences.append(f"It wants {wanted} that it does not have.")
    return tuple(sentences)


def _released(setting: ThreatSetting) -> str:
    parts: list[str] = []
    answers = "the weights of "
    mechanism: Mechanism = setting.mechanism
    while not isinstance(mechanism, Model):
        if isinstance(mechanism, Defence):
            parts.append(mechanism.describe())
        elif isinstance(mechanism, Answers):
            count = len(mechanism.queries)
            if isinstance(setting.given, Outputs):
                count = len(setting.given.queries)
            answers = f"answers to {count:,} queries, only {_ANSWERS[mechanism.answer]}, by "
        elif isinstance(mechanism, RecordedTraining):
            return f"the parameters and gradients of {mechanism.describe()}"
        elif isinstance(mechanism, GradientStep | LocalSteps | Aggregate):
            return ", ".join([described(mechanism), *reversed(parts)])
        elif isinstance(mechanism, Estimator):
            return ", ".join([f"a fitted {mechanism.describe()}", *reversed(parts)])
        else:
            return f"what {type(mechanism).__name__} publishes"
        mechanism = mechanism.inner
    text = f"{answers}{mechanism.describe()}"
    return ", ".join([text, *reversed(parts)])


def _about_records(setting: ThreatSetting) -> str:
    shape = " × ".join(map(str, setting.fixed_set.record_shape))
    if setting.batch is not None:
        count = "one record" if setting.batch == 1 else f"a batch of {setting.batch} records"
        if gradient_step(setting.mechanism) is None:
            return (
                f"It was trained on {setting.batch:,} records ({shape} values each), none of which "
                "the adversary has; it knows the training algorithm with its settings."
            )
        known = "the adversary knows the network and the parameters at which it was computed"
        if setting.schema is None:
            return f"It was computed on {count} ({shape} values each); {known}."
        columns, told = len(setting.schema.columns), rows_told(setting)
        return f"{told}. It was computed on {count} ({columns} columns each); {known}."
    values, told = f"{shape} values", rows_told(setting)
    if setting.schema is not None:
        values = f"{len(setting.schema.columns)} columns"
    return (
        f"{told}{'. ' if told else ''}The adversary has all {setting.records - 1:,} other "
        f"training records ({values} each) with their labels, and knows the training algorithm "
        "with its settings."
    )


def rows_told(setting: ThreatSetting) -> str:
    """Say what became of the rows of the data; nothing of a release that is not ours."""
    if setting.targets is None or setting.given is not None:
        return ""
    if setting.batch is not None and setting.schema is None:
        return ""
    known, targets = len(setting.fixed_set), len(setting.targets)
    shadows = 0 if setting.shadow_targets is None else len(setting.shadow_targets)
    rows = known + targets + shadows + setting.left_out
    parts = [f"{known:,} known"] if setting.batch is None else []
    parts += [f"{targets:,} targets"]
    parts += [f"{shadows:,} like the targets"] if shadows else []
    parts += [f"{setting.left_out:,} left out"] if setting.left_out else []
    return f"{rows:,} rows: {', '.join(parts)}"


def _about_start(setting: ThreatSetting) -> list[str]:
    """Its knowledge of the random choices of a network's training."""
    model = trained_model(setting.mechanism)
    if isinstance(setting.mechanism, RecordedElsewhere):
        return [_KNOWN_PARTS, "All targets were in this one training, and share its noise."]
    if isinstance(model, Loop):
        known = "knows" if model.seed is not None else "does not know"
        return [f"It {known} the seed that the loop was run with."]
    if not isinstance(model, Training):
        return []
    start = model.initial.known or setting.initial is not None
    sentences = [
        "It knows the parameters that training started from."
        if start
        else "It does not know the parameters that training started from."
    ]
    if isinstance(setting.mechanism, Recorded) and model.batches is not None:
        sentences.append(_KNOWN_PARTS)
    elif model.batches is not None and not model.batches.known:
        sentences.append("It does not know the order of the mini-batches.")
    if not model.draws_known:
        sentences.append("It does not know what dropout and augmentation drew.")
    return sentences


def _known_values(setting: ThreatSetting) -> str:
    """Name the columns that the adversary has of the target, or count the values."""
    schema = setting.schema
    if schema is not None:
        pairs = zip(schema.columns, schema.places, strict=True)
        named = [c.name for c, place in pairs if place.start in setting.known_columns]
        return ", ".join(named)
    total = int(np.prod(setting.fixed_set.record_shape))
    return f"{len(setting.known_columns)} of its {total} values"


def _about_target(setting: ThreatSetting) -> str:
    known, several = [], setting.batch not in (None, 1)
    if setting.knows_labels:
        known.append("the labels" if several else "its label")
    if setting.knows_statistics:
        known.append("the statistics of its normalisation layers")
    if setting.known_columns:
        known.append(_known_values(setting))
    if setting.register is not None:
        return (
            f"It has {setting.register.count} candidates, of which one is the target: success is "
            "naming the right one."
        )
    if not known:
        return "It knows nothing about the target, not even the label."
    return f"About {'them' if several else 'the target'} it knows {' and '.join(known)}."
