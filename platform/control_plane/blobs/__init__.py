"""Large bodies at the edge of Django: what stands before uploads, and the addresses of blobs."""
