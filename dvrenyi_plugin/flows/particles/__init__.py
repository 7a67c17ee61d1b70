"""Birth-death Langevin: particles that move, die and are copied."""
