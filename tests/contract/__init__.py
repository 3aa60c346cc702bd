"""The contracts that every implementation keeps, the doubles included."""
