"""Metrics made from a configuration's names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exhume.metrics import (
    LPIPS,
    MSE,
    NCC,
    PSNR,
    RMSE,
    SSIM,
    ClassifierKL,
    RecordsRight,
    SpanResidual,
    ValuesRight,
    make,
    names,
)
from exhume.protocol.errors import InputError
from exhume.protocol.schema import Column, ColumnKind, Schema


def test_every_name_makes_its_metric(monkeypatch: pytest.MonkeyPatch, random_weights: Path) -> None:
    monkeypatch.setenv("EXHUME_DATA", str(random_weights.parent))
    kinds = (MSE, RMSE, PSNR, SSIM, NCC, LPIPS, ClassifierKL, SpanResidual)
    kinds = (*kinds, ValuesRight, RecordsRight)
    columns = Schema((Column("sex", ColumnKind.CATEGORICAL, ("f", "m")),))
    for name, kind in zip(names(), kinds, strict=True):
        metric = make(
            name,
            value_range=(0, 1),
            scale=np.array([1.0, 2.0]),
            predict=lambda records: records,
            schema=columns,
        )
        assert type(metric) is kind
        assert metric.name == name
        assert metric.value_range == (0, 1)


def test_the_scale_arrives() -> None:
    truth, samples = np.zeros((1, 2)), np.ones((1, 2))
    assert make("mse", scale=np.array([2.0, 2.0]))(truth, samples).tolist() == [0.25]
    assert make("rmse", scale=np.array([2.0, 2.0]))(truth, samples).tolist() == [0.5]


@pytest.mark.parametrize("name", ["mse", "rmse", "ncc"])
def test_tables_need_no_range(name: str) -> None:
    assert make(name).value_range is None


@pytest.mark.parametrize("name", ["psnr", "ssim", "lpips"])
def test_images_need_a_range(
    name: str, monkeypatch: pytest.MonkeyPatch, random_weights: Path
) -> None:
    monkeypatch.setenv("EXHUME_DATA", str(random_weights.parent))
    with pytest.raises(InputError, match=f"{name} needs the records' value range"):
        make(name)


def test_kl_needs_a_classifier() -> None:
    with pytest.raises(InputError, match="needs a classifier"):
        make("kl")


def test_lpips_needs_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXHUME_DATA", raising=False)
    with pytest.raises(InputError, match=r"lpips_alex\.npz"):
        make("lpips", value_range=(0, 1))


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(InputError, match="'msee'; did you mean 'mse'"):
        make("msee")
    with pytest.raises(
        InputError, match="'other'; there are mse, rmse, psnr, ssim, ncc, lpips, kl"
    ):
        make("other")
