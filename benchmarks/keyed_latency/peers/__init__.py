"""Other engines under the same load: each a program of its own, which is asked for one turn after another.

Begin with `registry.py` (who takes part, set how, and what each of them guarantees), then `serving.py` (how a program
is asked). `turns.py` asks them in turns.
"""
