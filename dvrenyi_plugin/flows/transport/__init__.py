"""The transport half of a step: reversible generators on grids and their solvers."""
