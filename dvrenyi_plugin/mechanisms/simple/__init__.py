"""Mechanisms in closed form: additive noise, randomised response, noisy max."""
