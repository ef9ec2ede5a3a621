"""Trajectory inversion: solve the known, deterministic training map for the one unknown record."""
