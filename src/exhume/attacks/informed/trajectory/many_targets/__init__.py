"""Trajectory inversion for many targets of one training at once: multisecant Gauss–Newton."""
