"""Files that come in parts (`uploading`), what bounds them (`bounds`), and what becomes of them:
read and discarded by whoever they are for (`files`), or forgotten (`expiry`)."""
