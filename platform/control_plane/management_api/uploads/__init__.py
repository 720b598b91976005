"""/v1/uploads, in OpenAI's shape. It stands below /v1, whose other addresses the gateway answers,
and is Django's: parts are large, few, and go to the store of blobs."""
