"""What tests share. A test imports from here, never from another test."""
