"""DP-SGD on three engines: many models at once, Opacus, TensorFlow Privacy."""
