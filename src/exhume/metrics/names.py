"""Metrics by the names a configuration knows them by."""

from __future__ import annotations

from exhume.arrays import Array
from exhume.errors import InputError
from exhume.metrics.base import Metric, Range
from exhume.metrics.classifier import ClassifierKL, Predict
from exhume.metrics.error import MSE, NCC, PSNR, RMSE
from exhume.metrics.perceptual import LPIPS, SSIM, lpips_weights
from exhume.metrics.span import Span


def names() -> tuple[str, ...]:
    """Return every metric's name.

    >>> names()
    ('mse', 'rmse', 'psnr', 'ssim', 'ncc', 'lpips', 'kl', 'span')
    """
    return tuple(metric.name for metric in (MSE, RMSE, PSNR, SSIM, NCC, LPIPS, ClassifierKL, Span))


def make(
    name: str,
    *,
    value_range: Range | None = None,
    scale: Array | None = None,
    predict: Predict | None = None,
) -> Metric:
    """Return the metric called ``name``, for records with this range, scale and classifier.

    The settings describe the records, so one set of them serves every metric, and each takes what
    it has a use for: only MSE and RMSE take ``scale``, only KL takes ``predict``.
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
            return Span(value_range=value_range)
        case "kl" if predict is not None:
            return ClassifierKL(predict, value_range=value_range)
        case "kl":
            raise InputError("the metric kl needs a classifier (predict), and none was given")
    raise InputError(f"there is no metric called {name!r}; there are {', '.join(names())}")


def _needed(value_range: Range | None, name: str) -> Range:
    if value_range is None:
        raise InputError(f"the metric {name} needs the records' value range, such as (0, 1)")
    return value_range
