"""Judges reports of timerbench: reads them, compares two sides, says pass, regression or that it cannot decide."""
