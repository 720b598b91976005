"""What tests of training share, and what they run in the engine's environment."""
