"""The lakehouse: the only place with pyiceberg and with the catalogs' HTTP."""
