"""What docs/benchmarks.md reports, measured by one command: ``python -m benchmarks``.

Every figure that depends on the machine is given as a ratio to something that ran beside it, in the same run.
"""
