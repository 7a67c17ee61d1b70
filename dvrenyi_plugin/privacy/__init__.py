"""What is claimed: trade-off curves. numpy and scipy only."""
