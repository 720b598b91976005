"""What README and docs print."""
