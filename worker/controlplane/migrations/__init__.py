"""What Reroot adds to a live control plane, step by step. Run by ``worker.controlplane.migrate``."""
