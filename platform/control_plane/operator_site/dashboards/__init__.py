"""The operators' dashboards: live pages in a group of their own, a file for each page's panels."""
