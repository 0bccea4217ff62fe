"""How a turn runs: FULL, PULL or DIRECT, chosen by what each would take. Pure.

`choice` decides; `rates` estimates the seconds of each way from what earlier turns took; `fit`
holds the two small estimators; `backlog` knows the work that an engine has before it; `tokens`
guesses the number of new tokens; `config` is what an operator sets. The router's `turn` calls it
and measures. No HTTP, no event loop, no clock: times are arguments.
"""
