"""Reroot's worker: gives Iceberg tables their place, one job per dataset, under the control plane's lock.

Imports point one way, and the build checks it:

    tasks → wiring → sweeper, moves, births, provisioning, controlplane, lakehouse, app, telemetry → values

where *values* are ``identifiers``, ``outcome``, ``messages`` and ``settings``: modules without I/O.
"""
