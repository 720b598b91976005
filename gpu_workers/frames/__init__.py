"""Token frames on their way to gateways: written in batches, kept to be resent."""
