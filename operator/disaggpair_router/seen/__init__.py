"""What a router tells of itself: of turns, of its own state, of its event loop.

`turns` is what a turn tells its legs to note, `state` counts engines and leases for the metrics,
`loop` the delay of the event loop. `tracing` is the seam to OpenTelemetry, of which `otel` alone
knows. The series themselves are in `metrics`, the line of a turn in `turnlog`.
"""
