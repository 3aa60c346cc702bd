"""What a server does that others do not: one frozen value for each server that the double can stand for.

The default is a correct server, in the words of the reference one. Where a trait comes from, recordings of real servers
say so (``tests/data/recorded``); the traits of Polaris were read in its source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.support.rest_double.gravitino import Gravitino, Gravitino12
from tests.support.rest_double.lakekeeper import Lakekeeper, LakekeeperMain
from tests.support.rest_double.refusals import Dialect
from tests.support.rest_double.routes import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperament:
    """The traits of a server."""

    name: str
    dialect: Dialect
    prefix: Literal["none", "name", "id"] = "none"
    """What stands between ``/v1/`` and ``namespaces``."""
    separator: str = "%1F"
    """Between the levels of a namespace in a path; announced where it is another one."""

    # Names.
    ignores_case: bool = False
    blank_for_plus: bool = False
    """A plus in a path is read as a blank, encoded or not: a table whose name holds one cannot be reached."""
    checks_names: bool = False
    """Refuses what Lakekeeper refuses: dots in levels, plus signs, reserved names, more than five levels."""
    parents_needed: bool = False
    makes_namespaces: bool = False
    """A table may be made in a namespace that is not there, which then is."""

    full_page_has_next: bool = False
    """A page that is full leads to a next one, even to an empty one."""

    # Tables.
    one_name_per_uuid: bool = False
    exclusive_locations: bool = False
    """No table lies in, or above, the folder of another."""
    locations_within: Literal["anywhere", "warehouse", "namespace"] = "anywhere"
    hadoop_paths: bool = False
    """Tells a metadata location as ``file:/…`` where the table's own is ``file:///…``."""
    folders_by_uuid: bool = False
    """A table's own folder carries its uuid, not its name."""
    answers_from_database: bool = False
    """Load and commit need no metadata file, and so answer 200 when purge took it."""
    caches_metadata: bool = False
    """Load goes on answering when the metadata file is gone; nothing else does."""
    reads_file_first: bool = False
    """Register reads the metadata file before it looks at the namespace or the name."""
    overwrites: Literal["refused", "ignored", "obeyed"] = "refused"
    stage_creates: bool = True

    configures: frozenset[Kind] = frozenset({Kind.CREATE, Kind.LOAD, Kind.REGISTER})
    """Which answers tell how storage is reached."""
    vends: frozenset[Kind] = frozenset()
    """Which answers hand out a credential of the table's own, even an empty one."""

    # Dropping.
    purges_unless_told: bool = False
    purge_forbidden: bool = False

    # Renaming.
    renames_by_row: bool = False
    """Looks the table up first and changes its row afterwards, whatever happened in between."""
    deleted_blocks_rename: bool = False

    # Gravitino with authorization.
    fails_after_success: bool = False
    """Register, create and a first commit below one level are done, and then answered with a 500."""
    flattens_listings: bool = False
    """Listings below one level name the first level alone."""
    fails_on_nested_drop: bool = False
    """The drop of an empty nested namespace is done, and then answered with a 500."""
    authorization_failed: bool = False
    """A catalog that cannot start answers everything but config with a 500 "Authorization failed"."""
    minds_disabled: bool = False
    """A catalog that is not in use makes tables and namespaces, and then answers with a 500."""
    restricts_names: bool = False
    """Metadata tables' names are hidden below one level, names with a dot cannot be used, and a rename to more than 128
    characters is done and then answered with a 500."""
    leaves_out_dots: bool = False
    """Listings do not name a table whose name has a dot."""


CORRECT: Final = Temperament(name="correct", dialect=Dialect())

LAKEKEEPER_0_13_3: Final = Temperament(
    name="lakekeeper-0.13.3",
    dialect=Lakekeeper(),
    prefix="id",
    ignores_case=True,
    blank_for_plus=True,
    checks_names=True,
    parents_needed=True,
    one_name_per_uuid=True,
    exclusive_locations=True,
    locations_within="warehouse",
    folders_by_uuid=True,
    answers_from_database=True,
    reads_file_first=True,
    overwrites="obeyed",
    purges_unless_told=True,
    full_page_has_next=True,
    configures=frozenset({Kind.CREATE, Kind.LOAD, Kind.REGISTER, Kind.COMMIT}),
    vends=frozenset({Kind.CREATE, Kind.LOAD}),
    renames_by_row=True,
    deleted_blocks_rename=True,
)

LAKEKEEPER_MAIN: Final = replace(
    LAKEKEEPER_0_13_3,
    name="lakekeeper-main",
    dialect=LakekeeperMain(),
    vends=frozenset({Kind.CREATE, Kind.LOAD, Kind.REGISTER}),
    deleted_blocks_rename=False,
)

GRAVITINO_1_3: Final = Temperament(
    name="gravitino-1.3",
    dialect=Gravitino(),
    caches_metadata=True,
    hadoop_paths=True,
    prefix="name",
    configures=frozenset(),
    authorization_failed=True,
    minds_disabled=True,
)

GRAVITINO_1_3_AUTHORIZATION: Final = replace(
    GRAVITINO_1_3, name="gravitino-1.3-authorization", restricts_names=True, leaves_out_dots=True
)

GRAVITINO_1_2_AUTHORIZATION: Final = Temperament(
    name="gravitino-1.2-authorization",
    dialect=Gravitino12(),
    prefix="name",
    makes_namespaces=True,
    hadoop_paths=True,
    overwrites="ignored",
    configures=frozenset(),
    fails_after_success=True,
    flattens_listings=True,
    fails_on_nested_drop=True,
    minds_disabled=True,
    restricts_names=True,
)

GRAVITINO_1_2: Final = replace(
    GRAVITINO_1_2_AUTHORIZATION,
    name="gravitino-1.2",
    fails_after_success=False,
    flattens_listings=False,
    fails_on_nested_drop=False,
    minds_disabled=False,
    restricts_names=False,
)

POLARIS: Final = Temperament(
    name="polaris",
    dialect=Dialect(),
    prefix="name",
    parents_needed=True,
    locations_within="namespace",
    overwrites="obeyed",
    purge_forbidden=True,
)

TEMPERAMENTS: Final = {
    temperament.name: temperament
    for temperament in (
        CORRECT,
        LAKEKEEPER_0_13_3,
        LAKEKEEPER_MAIN,
        GRAVITINO_1_2_AUTHORIZATION,
        GRAVITINO_1_2,
        GRAVITINO_1_3,
        GRAVITINO_1_3_AUTHORIZATION,
        POLARIS,
    )
}
