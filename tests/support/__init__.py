"""What tests stand on: doubles, servers of our own, builders of real tables."""
