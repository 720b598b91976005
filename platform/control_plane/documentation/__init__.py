"""Pages for whoever calls the API: /docs/api from the OpenAPI document, /docs/websocket from the
structs of the frames. Public, the same for everybody."""
