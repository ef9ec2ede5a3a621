"""One target, for large sets: a record's effect is predicted to first order, and corrected."""
