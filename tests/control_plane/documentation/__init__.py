"""Tests of the pages for whoever calls the API."""
