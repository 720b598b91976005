"""From a month's usage to invoices: drafts, issue, SLA credits, files, checks."""
