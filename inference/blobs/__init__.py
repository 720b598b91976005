"""Bytes of any size that are no rows: adapters, uploads, later files and batches. One store, a
folder or a bucket of S3, behind `BlobStore`; whoever puts something there seals it first
(gpu_workers/protocol/sealed.py), and registers which of its rows refer to what (`sweep`)."""
