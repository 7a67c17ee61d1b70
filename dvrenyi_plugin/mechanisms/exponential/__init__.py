"""The exponential mechanism, exactly and by flows; grids and particles."""
