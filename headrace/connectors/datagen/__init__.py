"""Records made by a function of their index, at a rate if wanted, and the integers of a range.

Duty: input for tests, demonstrations and measurements. Start reading: `source`.
"""
