"""`make demo-traffic`: the demo tenants at work, so that dashboards have something to say."""
