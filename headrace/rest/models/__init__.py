"""Bodies of requests and answers, as Flink's REST API spells them.

Duty: one pydantic model per shape; names of fields become JSON names by the base that a model has.
Neighbours: `handlers` fill them from messages of `gateways`; the OpenAPI page is made from them.
Start reading: `spelling`.
"""
