"""The control plane (Postgres): the only place with SQL. Lock, ledger, journal, plan, top-up, migrations."""
