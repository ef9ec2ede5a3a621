"""Trajectory inversion: solve the known, deterministic training map for the one unknown record."""

from exhume.attacks.trajectory.attack import TrajectoryInversion

__all__ = ["TrajectoryInversion"]
