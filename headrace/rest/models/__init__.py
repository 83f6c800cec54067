"""Bodies of requests and answers, with the names of Flink's REST API.

Duty: one pydantic model per shape; the base of a model turns names of fields into JSON names.
Neighbours: `handlers` fill the models from messages of `gateways`; the OpenAPI page is made from them.
Start reading: `base_models`.
"""
