"""Floors on the reconstruction error, for comparison with the error that an attack reached.

A floor says which attacks it binds (``Floor.binds``): unbiased ones only, or all.
"""

from exhume.bounds.floors import liu
from exhume.bounds.floors.accounting import event_information, event_replacement_divergence
from exhume.bounds.floors.base import ErrorUnit, Floor, FloorBinds
from exhume.bounds.floors.cramer_rao import (
    Probing,
    cramer_rao,
    cramer_rao_from_jacobian,
    cramer_rao_from_products,
)
from exhume.bounds.floors.entropy import (
    channel_information,
    entropy_floor,
    gaussian_entropy_power,
    linear_channel_information,
    uniform_entropy_power,
)
from exhume.bounds.floors.jacobian import release_jacobian
from exhume.bounds.floors.renyi import (
    fisher_floor,
    fisher_leakage,
    renyi_floor,
    renyi_floor_of_event,
)
from exhume.bounds.floors.van_trees import van_trees_from_jacobians

__all__ = [
    "ErrorUnit",
    "Floor",
    "FloorBinds",
    "Probing",
    "channel_information",
    "cramer_rao",
    "cramer_rao_from_jacobian",
    "cramer_rao_from_products",
    "entropy_floor",
    "event_information",
    "event_replacement_divergence",
    "fisher_floor",
    "fisher_leakage",
    "gaussian_entropy_power",
    "linear_channel_information",
    "liu",
    "release_jacobian",
    "renyi_floor",
    "renyi_floor_of_event",
    "uniform_entropy_power",
    "van_trees_from_jacobians",
]
