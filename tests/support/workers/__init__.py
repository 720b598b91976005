"""Workers and engines under test: the contract of all engines, and who listens to a worker."""
