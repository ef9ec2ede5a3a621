"""Where a search for records begins, as a table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exhume.config.base import Table

Part = Annotated[float, Field(ge=0, le=1)]


class StartTable(Table):
    """Begin searches at (1 − noise) · (truth · x + (1 − truth) · s) + noise · u.

    x are the training records themselves, s shadow targets of the same classes, u uniform over the
    value range (Runkel et al. 2024, equation 10), or with ``deviation`` Gaussian of that deviation
    around the shadow targets' mean value. ``truth`` above 0 is no attack but a question to one:
    would it stay at the right answer? The default begins at records that the adversary has.
    """

    truth: Part = 0.0
    noise: Part = 0.0
    deviation: Annotated[float, Field(gt=0)] | None = None
