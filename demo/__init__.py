"""A first run on a fresh machine: embedded services, real data, real producer and workers, an independent proof."""
