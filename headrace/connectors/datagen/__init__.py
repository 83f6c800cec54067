"""Records made by a function of their index, at a rate if wanted.

Duty: input for tests, demonstrations and measurements. Start reading: `source`.
"""
