"""The project's core types: releases, knowledge, attacks, defences and metrics.

Every other package builds on this one; it imports none of them.
"""
