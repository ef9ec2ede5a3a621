"""The log of a run: its records, its store, its summary and what is strongest in it."""
