"""Process nodes: a small kubelet stand-in that runs the containers of pods as local processes.

One `Kubelet` per configured node registers a Node object with a real API server, watches the pods
bound to it and runs each container in a mount, PID and UTS namespace of its own:

    command -> kubelet -> pod -> container -> process -> sandbox (the child's side)
                 |         |        |-- probes, hooks, backoff, env, mounts
                 |         |-- volumes, payload, status
                 |-- registration, faults, endpoint (logs), events

Only `api` talks to the API server. `spec`, `env`, `expand`, `mounts`, `payload`, `probes`,
`backoff` and `status` have no I/O, no clock and no randomness.

Where this differs from a real node:
- There is no image file system. Volumes are mounted where the pod says, everything else is the
  host's file system, and what a container writes outside its volumes goes to the host. HOME,
  TMPDIR and the working directory are therefore set to a scratch directory per container, unless
  the pod or the image sets them.
- There is no network namespace. A pod has a loopback address of its own, but a process that
  listens on 0.0.0.0 takes the port for the whole machine.
- There is one /dev/shm for all pods, unless a pod mounts a volume there.
- Not honoured: resource limits, security contexts, `resize` and changes of an image in place,
  Service environment variables other than those of the API server, persistent volumes, exec,
  attach and port-forward through the API server.
"""
