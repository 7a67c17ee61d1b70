"""Gradient flows toward a Gibbs law, and the theorems that certify them. numpy and scipy only."""
