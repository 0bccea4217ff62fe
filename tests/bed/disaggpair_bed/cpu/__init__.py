"""Real vLLM engines on the CPU, with real NIXL transfers.

`install` makes their environment, `model` the model that they serve, `image` the image entry that
puts both in front of a pod, `checks` asks vLLM's own parsers. `engine_plugins` is loaded by the
engines, `scripts` are run by their interpreter: neither is imported here.
"""
