"""A vLLM KV connector for prefill/decode pairs.

Importing this package, or `contract` in it, imports nothing else: operator and router do so
without vLLM or torch. vLLM itself imports `connector`, the value of `kv_connector_module_path`.
"""

from typing import Final

__version__: Final = "0.1.0"
