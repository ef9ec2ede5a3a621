"""Learned attacks from shadow models to records: ridge regression and reconstructor networks."""

from exhume.attacks.informed.learned.reconstructor import Reconstructor
from exhume.attacks.informed.learned.ridge import Ridge

__all__ = ["Reconstructor", "Ridge"]
