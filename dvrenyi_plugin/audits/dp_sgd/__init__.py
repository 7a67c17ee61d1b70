"""The audit of DP-SGD: from settings over trained models to the report."""
