"""A sample of turns is computed again, to find answers that came of wrong KV.

Wrong KV gives a fluent wrong answer with status 200, and stays in a prefix cache. `compare` and
`questions` are pure; `checks` asks the engines.
"""
