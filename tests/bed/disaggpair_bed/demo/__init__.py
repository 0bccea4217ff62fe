"""The demo: from nothing to five turns whose KV moves from decode to prefill, on one machine."""
