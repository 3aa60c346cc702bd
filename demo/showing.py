"""What the person at the terminal sees: one line a step, and the tree of tables.

Responsible for: output that fits 80 columns and is readable without colours.
Must not know: how anything is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from demo.population import warehouse_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from demo.population import Born

WIDTH: Final = 80
SHOWN: Final = 3
"""Tables that are shown per namespace; the others are counted."""


@dataclass(slots=True)
class Narrator:
    """One line a step, each with the seconds since the start."""

    console: Console = field(default_factory=lambda: Console(width=WIDTH, highlight=False))
    _begun: float = field(default_factory=time.monotonic)

    def step(self, text: str) -> None:
        """Say what is done next."""
        self.console.print(Text(f"[{time.monotonic() - self._begun:5.1f} s] ", "dim"), Text(text, "bold"), sep="")

    def detail(self, text: str) -> None:
        """Say what came of it."""
        self.console.print(Text(f"          {text}"))

    def command(self, text: str) -> None:
        """Show a command as it is typed."""
        self.console.print(Text(f"$ {text}", "bold cyan"))

    def tree(self, tree: Tree) -> None:
        """Show a tree."""
        self.console.print(tree)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._begun


def table_tree(control_plane_url: str, catalog_url: str, datasets: Iterable[Born]) -> Tree:
    """Every warehouse, namespace and table that the catalog holds, with the names that people know them by."""
    born = list(datasets)
    names = {"ds_" + one.dataset_id.replace("-", ""): one.holding.name for one in born}
    human = _human_names(control_plane_url)
    root = Tree("lakehouse")
    for workspace_id, title in {one.workspace_id: one.holding.workspace for one in born}.items():
        warehouse = root.add(Text(f"{title}  ({warehouse_name(workspace_id)[:10]}…)", no_wrap=True))
        nodes: dict[tuple[str, ...], Tree] = {}
        for namespace, tables in _namespaces(catalog_url, warehouse_name(workspace_id)).items():
            node = _node(warehouse, nodes, tuple(namespace.split(".")), (workspace_id, human))
            for table in tables[:SHOWN]:
                node.add(Text(f"{table[:11]}…  {names.get(table, '?')}", no_wrap=True))
            if len(tables) > SHOWN:
                node.add(Text(f"… and {len(tables) - SHOWN} more", "dim"))
    return root


def _node(
    warehouse: Tree,
    nodes: dict[tuple[str, ...], Tree],
    levels: tuple[str, ...],
    naming: tuple[str, dict[tuple[str, ...], str]],
) -> Tree:
    """The tree's node of a namespace, made with its parents."""
    if not levels:
        return warehouse
    if levels not in nodes:
        parent = _node(warehouse, nodes, levels[:-1], naming)
        workspace_id, human = naming
        name = human.get((workspace_id, *levels))
        nodes[levels] = parent.add(Text(levels[-1] + (f"  “{name}”" if name else ""), "bold", no_wrap=True))
    return nodes[levels]


def _namespaces(catalog_url: str, warehouse: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with psycopg.connect(catalog_url) as connection:
        for namespace, table in connection.execute(
            "SELECT table_namespace, table_name FROM iceberg_tables WHERE catalog_name = %s ORDER BY 1, 2", (warehouse,)
        ):
            found.setdefault(str(namespace), []).append(str(table))
    return found


def _human_names(control_plane_url: str) -> dict[tuple[str, ...], str]:
    """What people call the catalogs and schemas, by workspace and slugs."""
    with psycopg.connect(control_plane_url) as connection:
        catalogs = connection.execute("SELECT workspace_id::text, slug, name FROM catalogs").fetchall()
        schemas = connection.execute(
            "SELECT c.workspace_id::text, c.slug, s.slug, s.name FROM schemas s JOIN catalogs c ON c.id = s.catalog_id"
        ).fetchall()
    return {tuple(row[:-1]): str(row[-1]) for row in (*catalogs, *schemas)}
