"""What Reroot remembers: the ledger, its events, the journal, warehouses, tenants, workers."""

from typing import Final

from psycopg import sql

from worker.controlplane.migrations.steps import current_steps, here

revision: Final = "0001"
down_revision: Final = None

_THERE: Final = sql.SQL("SELECT to_regclass('reroot.moves')")
_OURS: Final = sql.SQL(
    "SELECT string_agg(format('DROP %s reroot.%I', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname), '; '"
    " ORDER BY relkind = 'v' DESC, relname)"
    " FROM pg_class WHERE relnamespace = 'reroot'::regnamespace AND relkind IN ('r', 'v')"
    " AND relname <> 'alembic_version'"
)


def upgrade() -> None:
    """One transaction: it is there as a whole or not at all."""
    steps = current_steps()
    if steps.value(_THERE) is None:
        steps.script(here("ledger.sql"))


def downgrade() -> None:
    """Without CASCADE: what another program has built on it is not ours to drop."""
    steps = current_steps()
    if steps.value(_THERE) is not None:
        steps.run(sql.SQL(steps.value(_OURS)))
