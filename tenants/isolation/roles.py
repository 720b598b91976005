"""What Penstock's roles in PostgreSQL are called; control_plane/database_roles.py makes them."""

OWNER_ROLE = "penstock_owner"
WEB_ROLE = "penstock_web"
OPERATOR_ROLE = "penstock_operator"
