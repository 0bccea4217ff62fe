"""The DisaggPair API: models, rules, the CRD made from them, and parsing."""
