"""How cost grows: with TaskManagers, keys, panes of a window, channels, and tasks of a job. One question per file.

`__main__` asks them all, `series` is what they answer with, `report` and `pictures` make docs/growth_report.md.
"""
