"""The names of broken samplers, apart from the samplers, which are slow to load."""

from __future__ import annotations

WRONG_TEMPERATURE = "wrong_temperature"
DATA_DEPENDENT_START = "data_dependent_start"
UNDERSTATED_SENSITIVITY = "understated_sensitivity"
SAMPLER_DEFECTS = (WRONG_TEMPERATURE, DATA_DEPENDENT_START, UNDERSTATED_SENSITIVITY)
