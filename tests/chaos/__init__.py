"""Chaos: real workers, a real broker, a real catalog, and seeded disasters for minutes; nothing may be lost by it.

``python -m tests.chaos --datasets 300 --minutes 5 --seed 7 --strategy register``
"""
