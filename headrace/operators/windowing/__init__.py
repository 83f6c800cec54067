"""Windows, record by record: the general operator for any assigner, trigger and function.

Start with `window_operator`. Built-in aggregates of whole batches are in `operators/columns`.
"""
