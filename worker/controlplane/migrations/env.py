"""Alembic's entry: runs the migrations on the connection that ``worker.controlplane.migrate`` has prepared.

In autocommit, without a transaction around a migration: an index built concurrently refuses one, and a lock taken by
one step would be held until the last. Each step is repeatable instead.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema="reroot",
    transactional_ddl=False,
)
with context.begin_transaction():
    context.run_migrations()
