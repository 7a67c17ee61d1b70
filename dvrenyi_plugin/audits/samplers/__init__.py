"""The audit of samplers of the exponential mechanism: certificate, exact laws, bounds."""
