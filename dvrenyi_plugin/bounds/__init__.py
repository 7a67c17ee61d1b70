"""Confidence statements: means of bounded variables and what follows from them. numpy and scipy
only."""
