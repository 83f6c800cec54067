"""Specs of operators, one class per kind. Graphs carry them from the API to the operators; not for users."""
