"""Metrics by their names in a configuration."""

from __future__ import annotations

from exhume.metrics.cells import RecordsRight, ValuesRight
from exhume.metrics.classifier import ClassifierKL, Predict
from exhume.metrics.error import MSE, NCC, PSNR, RMSE
from exhume.metrics.perceptual import LPIPS, SSIM, lpips_weights
from exhume.metrics.span import SpanResidual
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.metric import Metric, Range
from exhume.protocol.names import no_such
from exhume.protocol.schema import Schema

SHARES = (ValuesRight.name, RecordsRight.name)
"""The metrics that are shares of what is right: their mean says more than their median."""


def names() -> tuple[str, ...]:
    """Return every metric's name.

    >>> names()
    ('mse', 'rmse', 'psnr', 'ssim', 'ncc', 'lpips', 'kl', 'span', 'values-right', 'records-right')
    """
    return tuple(
        metric.name
        for metric in (
            *(MSE, RMSE, PSNR, SSIM, NCC, LPIPS, ClassifierKL, SpanResidual),
            *(ValuesRight, RecordsRight),
        )
    )


def make(
    name: str,
    *,
    value_range: Range | None = None,
    scale: Array | None = None,
    predict: Predict | None = None,
    schema: Schema | None = None,
    unknown: tuple[str, ...] = (),
) -> Metric:
    """Return the metric called ``name``, for records with this range, scale and classifier.

    The settings describe the records, so all metrics get the same ones and use what they need: only
    MSE, RMSE and the metrics of cells use ``scale``, only KL uses ``predict``, and only the metrics
    of cells use ``schema`` and ``unknown``, the columns that count.
    """
    match name:
        case "mse":
            return MSE(value_range=value_range, scale=scale)
        case "rmse":
            return RMSE(value_range=value_range, scale=scale)
        case "psnr":
            return PSNR(value_range=_needed(value_range, name))
        case "ssim":
            return SSIM(value_range=_needed(value_range, name))
        case "ncc":
            return NCC(value_range=value_range)
        case "lpips":
            return LPIPS(lpips_weights(), value_range=_needed(value_range, name))
        case "span":
            return SpanResidual(value_range=value_range)
        case "values-right" | "records-right":
            if schema is None or scale is None:
                raise InputError(f"the metric {name} is for tables: it needs a schema and a scale")
            cells = ValuesRight if name == "values-right" else RecordsRight
            return cells(schema=schema, scale=scale, unknown=unknown, value_range=value_range)
        case "kl" if predict is not None:
            return ClassifierKL(predict, value_range=value_range)
        case "kl":
            raise InputError("the metric kl needs a classifier (predict), but none was given")
    raise InputError(no_such("metric", name, names()))


def _needed(value_range: Range | None, name: str) -> Range:
    if value_range is None:
        raise InputError(f"the metric {name} needs the records' value range, such as (0, 1)")
    return value_range
