"""What holds for every resource of the management API."""
