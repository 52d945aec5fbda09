"""Upkeep: what keeps a memory from becoming noise. Each part proposes; ``Memory`` commits."""
