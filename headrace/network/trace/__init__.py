"""A tiny exchange run in slow motion, with every frame and every account written down; for learners and their docs.

Neighbours: observes `headrace/network`, changes nothing of it; `headrace/cli` prints what comes out.
Start reading: `steps` (what is written down), then `exchange` (who runs it).
"""
