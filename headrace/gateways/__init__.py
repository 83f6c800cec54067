"""Contracts of the control plane: one file per endpoint, its gateway Protocol and the frozen messages it carries.

An `async def` method is an ask: it has a reply and a timeout. A plain `def` returning None is a tell: no reply, errors
are logged at the callee. Arguments and replies are msgspec structs or builtins, so that the codec is closed.
"""
