"""What tests of the blob store and of uploads share."""
