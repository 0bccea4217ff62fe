// Command controlplane is a whole Kubernetes control plane and its two client
// programs in one binary: it acts as the program whose name it is called by.
//
// One binary links the packages that all six share once (145 MB instead of
// 600 MB) and is built with one command. The test bed makes the links.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	case "helm":
		os.Exit(runHelm(os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "%s: call this binary by the name of etcd, kube-apiserver, "+
			"kube-controller-manager, kube-scheduler, kubectl or helm\n", name)
		os.Exit(2)
	}
}

// runHelm returns Helm's exit status. Helm prints a failed command's error
// itself, a failed set-up not.
func runHelm(args []string) int {
	command, err := helm.NewRootCmd(os.Stdout, args, helm.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := command.Execute(); err != nil {
		return 1
	}
	return 0
}
