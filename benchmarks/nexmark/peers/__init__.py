"""The other engines: a stand-alone program each, run by an interpreter of its own, over the same files.

Begin with `registry.py` (who takes part, what they read and write), then `measure.py` (what all programs share).
`setup.py` makes the environments, `compare.py` says whether results are the same.
"""
