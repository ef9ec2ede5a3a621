"""Trajectory inversion: solve the known, deterministic training map for one unknown record."""

from exhume.attacks.informed.trajectory.attack import TrajectoryInversion

__all__ = ["TrajectoryInversion"]
