"""The audit of trained models: any training function, many models on two neighbouring datasets."""
