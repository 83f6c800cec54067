"""Contracts of the control plane: one file per endpoint, with its gateway Protocol and its frozen messages.

An `async def` method is an ask: it has a reply and a timeout. A plain `def` returning None is a tell: no reply, errors
are logged at the callee. Arguments and replies are msgspec structs or builtins, so that the codec handles a closed set
of types.
"""
