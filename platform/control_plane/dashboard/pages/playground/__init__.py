"""The playground: two models beside each other on one websocket. Conversations live in the page."""
