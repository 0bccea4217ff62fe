"""What is particular to each API that the router speaks: requests, answers, streams, errors.

Chat and completions, OpenAI's responses, Anthropic's messages. A turn is the same for all of them;
`shape` says what a turn has to know of one, `table` finds it. Everything here is pure.
"""
