"""The operators' admin as a site: sign-in, sidebar, one transaction per page."""
