"""Uploads of adapters, looked at in a jail: `validator` starts a process without network, files or
rights (`jailer`, `jail`), which reads the upload and writes anew what is stored (`child`)."""
