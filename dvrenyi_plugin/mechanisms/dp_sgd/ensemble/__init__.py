"""The engine that trains many models at once."""
