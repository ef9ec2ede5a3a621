"""Attacks on the stationarity (Karush–Kuhn–Tucker) conditions of trained weights."""

from exhume.attacks.kkt.attack import KKT
from exhume.attacks.kkt.row_space import RowSpace

__all__ = ["KKT", "RowSpace"]
