"""Trajectory inversion for one target of any training: Gauss–Newton through the unrolled steps."""
