"""Attacks on gradients and updates: analytic solutions, gradient matching, feature inversion."""
