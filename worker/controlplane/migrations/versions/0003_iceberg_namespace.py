"""Where each table lives: ``datasets.iceberg_namespace``, and the resolver as a function."""

from typing import Final

from psycopg import sql

from worker.controlplane.migrations.steps import GivenTable, MigrationRefusedError, Steps, current_steps, here

revision: Final = "0003"
down_revision: Final = "0002"

_CHECK: Final = "reroot_namespace_names_a_place"
# No empty level, and never the quarantine: whatever lies there is on its way out.
_NAMES_A_PLACE: Final = r"iceberg_namespace ~ '^[^.]+(\.[^.]+)*$' AND iceberg_namespace !~ '^reroot_withdrawn(\.|$)'"
_OPEN: Final = sql.SQL("SELECT count(*) FROM reroot.pointers WHERE closed_at IS NULL")
_LOG_INDEX: Final = "reroot_sync_log_dataset"
_FITTING_INDEX: Final = sql.SQL(
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam"
    " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
    " WHERE i.indrelid = %s AND a.attname = 'dataset_id' AND i.indisvalid AND i.indpred IS NULL"
    " AND m.amname = 'btree' LIMIT 1"
)


def upgrade() -> None:
    """The column, the index that a flip needs, the functions."""
    steps = current_steps()
    datasets, log = steps.given("datasets"), steps.given("iceberg_sync_log")
    steps.add_column(datasets, "iceberg_namespace", "text")
    steps.add_check(datasets, _CHECK, _NAMES_A_PLACE)
    steps.validate(datasets, _CHECK)
    if steps.value(_FITTING_INDEX, (log.oid,)) is None:
        steps.build_index(log, _LOG_INDEX, "(dataset_id) WHERE status = 'succeeded'")
    _create_functions(steps, datasets, log)


def downgrade() -> None:
    """Refused, before anything is removed, while the only thing that knows something would be removed with it."""
    steps = current_steps()
    datasets = steps.given("datasets")
    if open_entries := steps.value(_OPEN):
        raise MigrationRefusedError(
            f"the journal holds {open_entries} open pointers, which only it remembers: let the workers finish first"
        )
    if steps.has_column(datasets, "iceberg_namespace"):
        _drop_column_if_unused(steps, datasets)
    steps.drop_functions("table_identifier")
    steps.drop_index(steps.given("iceberg_sync_log"), _LOG_INDEX)


def _create_functions(steps: Steps, datasets: GivenTable, log: GivenTable) -> None:
    kind, is_text = steps.type_of(datasets, "id")
    log_kind, _ = steps.type_of(log, "dataset_id")
    steps.script(
        here("table_identifier.sql"),
        datasets=datasets.reference,
        log=log.reference,
        parameter=sql.SQL("text") if is_text else kind,
        datasets_id=kind,
        log_id=log_kind,
    )
    if not is_text:
        steps.script(here("table_identifier_text.sql"), datasets_id=kind)


def _drop_column_if_unused(steps: Steps, datasets: GivenTable) -> None:
    used = sql.SQL("SELECT count(*) FROM {} WHERE iceberg_namespace IS NOT NULL").format(datasets.reference)
    if placed := steps.value(used):
        raise MigrationRefusedError(
            f"{placed} datasets have an iceberg_namespace, and nothing else knows where their tables are:"
            " move them back first"
        )
    # Looked at again under the lock: a job may have set one since.
    steps.patiently(
        sql.SQL(
            "DO $do$ BEGIN LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;"
            " IF EXISTS (SELECT FROM {table} WHERE iceberg_namespace IS NOT NULL) THEN"
            " RAISE EXCEPTION 'a dataset has got an iceberg_namespace meanwhile: stop the workers first'; END IF;"
            " ALTER TABLE {table} DROP COLUMN iceberg_namespace; END $do$"
        ).format(table=datasets.reference),
        on=datasets,
    )
