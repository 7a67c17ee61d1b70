"""Command-line programs. Flags in, report out."""
