"""Metrics: truth and reconstruction in, one number per record out. Only metrics see the truth."""

from exhume.metrics.attributes import (
    AttributeMatch,
    AttributeRMSE,
    AttributeScore,
    discrete_levels,
    score_attributes,
)
from exhume.metrics.cells import RecordsRight, ValuesRight
from exhume.metrics.classifier import ClassifierKL
from exhume.metrics.error import MSE, NCC, PSNR, RMSE
from exhume.metrics.matching import Match, match, score
from exhume.metrics.names import make, names
from exhume.metrics.oblivious import (
    ConstantGuess,
    best_constant_guess,
    kappa_of_constant,
)
from exhume.metrics.oracle import Oracle, nearest_neighbours
from exhume.metrics.perceptual import LPIPS, SSIM, lpips_unavailable, lpips_weights
from exhume.metrics.span import SpanResidual
from exhume.protocol.metric import Metric
from exhume.stats.bootstrap import bootstrap_mean, bootstrap_median
from exhume.stats.interval import Interval
from exhume.stats.proportions import (
    Proportion,
    clopper_pearson,
    clopper_pearson_high,
    clopper_pearson_low,
)

__all__ = [
    "LPIPS",
    "MSE",
    "NCC",
    "PSNR",
    "RMSE",
    "SSIM",
    "AttributeMatch",
    "AttributeRMSE",
    "AttributeScore",
    "ClassifierKL",
    "ConstantGuess",
    "Interval",
    "Match",
    "Metric",
    "Oracle",
    "Proportion",
    "RecordsRight",
    "SpanResidual",
    "ValuesRight",
    "best_constant_guess",
    "bootstrap_mean",
    "bootstrap_median",
    "clopper_pearson",
    "clopper_pearson_high",
    "clopper_pearson_low",
    "discrete_levels",
    "kappa_of_constant",
    "lpips_unavailable",
    "lpips_weights",
    "make",
    "match",
    "names",
    "nearest_neighbours",
    "score",
    "score_attributes",
]
