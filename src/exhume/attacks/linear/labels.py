"""Labels of a target in an attack: which to try, their frequency, and their weight."""

from __future__ import annotations

import numpy as np

from exhume.attacks.linear.read_release import Reading
from exhume.protocol.arrays import FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.training.families import Family


def responses(reading: Reading, knowledge: Knowledge) -> list[FloatArray]:
    """The responses to try: the known one, or every class, or the mean as a start."""
    known = known_response(reading, knowledge)
    if known is not None:
        return [known]
    match reading.model.family:
        case Family.LOGISTIC:
            return [np.array([0.0]), np.array([1.0])]
        case Family.MULTINOMIAL:
            return list(np.eye(reading.model.outputs))
        case _:
            return [np.array([reading.prior.response_mean])]


def known_response(reading: Reading, knowledge: Knowledge) -> FloatArray | None:
    """The response of the label that the adversary knows, or None."""
    if knowledge.labels is None:
        return None
    return np.asarray(reading.model.responses(knowledge.labels)[0])


def class_response(reading: Reading, c: FloatArray) -> FloatArray:
    """The class of a residual: only the true class's entry is positive."""
    if reading.model.family is Family.LOGISTIC:
        return np.array([float(c[0] > 0)])
    return np.asarray(np.eye(len(c))[int(np.argmax(c))])


def snapped(reading: Reading, response: FloatArray) -> FloatArray:
    """The nearest response of a class; the response of a regression is returned unchanged."""
    if reading.model.family is Family.LOGISTIC:
        return np.array([float(response[0] > 0.5)])
    if reading.model.family is Family.MULTINOMIAL:
        return np.asarray(np.eye(len(response))[int(np.argmax(response))])
    return response


def label_weight(reading: Reading, knowledge: Knowledge, response: FloatArray) -> float:
    """The weight in training of a target with this response."""
    weights = reading.model.class_weights
    if weights is None:
        return knowledge.target_weight
    logistic = reading.model.family is Family.LOGISTIC
    index = int(response[0] > 0.5) if logistic else int(np.argmax(response))
    return knowledge.target_weight * weights[index]


def frequency(reading: Reading, response: FloatArray) -> float:
    """The frequency of the response's class in the fixed set (1 if there are no classes)."""
    if not reading.model.family.classifies:
        return 1.0
    same = np.all(reading.pool.responses == response, axis=1)
    return float((same.sum() + 1.0) / (len(same) + 1.0))
