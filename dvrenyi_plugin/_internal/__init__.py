"""What every room uses: argument validation, lazy exports, threads."""
