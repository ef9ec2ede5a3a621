"""Attacks of the informed adversary, who knows every other training record (Balle et al. 2022)."""
