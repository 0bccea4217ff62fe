"""The control plane of the test bed: real Kubernetes programs on one machine.

`build` compiles the Go module next to this package, `flags`, `pki` and `kubeconfig` say
what each program needs, `rundir` guards the folder of a bed and `addresses` its part of the
loopback network. `disaggpair_bed.cluster` puts them together.
"""
