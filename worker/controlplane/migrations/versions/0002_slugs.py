"""Slugs: the physical names of catalogs and schemas, given once and never changed."""

from typing import Final

from psycopg import sql

from worker.controlplane.migrations.steps import GivenTable, Steps, current_steps, here

revision: Final = "0002"
down_revision: Final = "0001"

_SHAPE: Final = "slug ~ '^[a-z0-9][a-z0-9_]{0,62}$'"
_RESERVED: Final = ("datasets", "reroot_withdrawn")
_SCOPED: Final = (("catalogs", "workspace_id", _RESERVED), ("schemas", "catalog_id", ()))
# Triggers fire in the order of their names: ours comes last, so that it sees the id and the name that others set.
_GIVE: Final = "zz_reroot_give_slug"
_KEEP: Final = "zz_reroot_keep_slug"


def upgrade() -> None:
    """Column, trigger, index, check, and only then the backfill: from the trigger on no row comes without a slug."""
    steps = current_steps()
    steps.script(here("slugs.sql"))
    for name, scope, reserved in _SCOPED:
        _add(steps, steps.given(name), scope, reserved)


def downgrade() -> None:
    """Triggers first: they need the column."""
    steps = current_steps()
    for name, _, _ in _SCOPED:
        table = steps.given(name)
        steps.drop_trigger(table, _GIVE)
        steps.drop_trigger(table, _KEEP)
        steps.drop_column(table, "slug")
    steps.drop_functions("give_slug", "keep_slug", "backfill_slugs", "take_slug", "lock_slug", "slug_key")
    steps.drop_functions("numbered_slug", "slugify")


def _add(steps: Steps, table: GivenTable, scope: str, reserved: tuple[str, ...]) -> None:
    steps.add_column(table, "slug", "text")
    arguments = ", ".join(f"'{argument}'" for argument in (scope, *reserved))
    steps.add_trigger(
        table, _GIVE, f"BEFORE INSERT ON {{table}} FOR EACH ROW EXECUTE FUNCTION reroot.give_slug({arguments})"
    )
    # Partial, since Postgres takes a full unique index for a possible target of foreign keys: each update of a slug
    # would then wait for every transaction that has inserted a child of the row.
    steps.build_index(table, f"reroot_{table.name}_slug", f"({scope}, slug) WHERE slug IS NOT NULL", unique=True)
    steps.add_check(table, "reroot_slug_shape", _SHAPE)
    if reserved:
        names = ", ".join(f"'{name}'" for name in reserved)
        steps.add_check(table, "reroot_slug_not_reserved", f"slug NOT IN ({names})")
    _backfill(steps, table, scope, reserved)
    steps.validate(table, "reroot_slug_shape")
    steps.validate(table, "reroot_slug_not_reserved")
    steps.add_trigger(
        table,
        _KEEP,
        "BEFORE UPDATE ON {table} FOR EACH ROW WHEN (OLD.slug IS DISTINCT FROM NEW.slug)"
        " EXECUTE FUNCTION reroot.keep_slug()",
    )


def _backfill(steps: Steps, table: GivenTable, scope: str, reserved: tuple[str, ...]) -> None:
    call = sql.SQL("SELECT reroot.backfill_slugs({}::oid::regclass, {}, {}, {})").format(
        table.oid, scope, list(reserved), steps.batch
    )
    left = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE slug IS NULL)").format(table.reference)
    steps.in_batches(f"slugs of {table}", call, left, on=table)
