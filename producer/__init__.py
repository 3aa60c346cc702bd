"""Reroot's producer and operator's command line: ``cli`` (thin) → ``plan`` (pure) → ``publish``."""
