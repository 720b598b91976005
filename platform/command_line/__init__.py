"""`penstock`, the command line: what a tenant's key may do goes by the management API, to whatever
service `PENSTOCK_URL` names and without Django; what operators do is a command of `manage.py` here.
"""
