"""The comparison with the original systems, behind scripts/originals."""
