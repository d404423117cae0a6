// Command kube is every Kubernetes program that the lab needs, in one binary: the name it is called by
// (argv[0], or the first argument when called as "kube") picks the command. One binary links and caches once.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"context"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

var commands = map[string]func(context.Context) *cobra.Command{
	"kube-apiserver":          func(context.Context) *cobra.Command { return apiserver.NewAPIServerCommand() },
	"kube-controller-manager": func(context.Context) *cobra.Command { return controllermanager.NewControllerManagerCommand() },
	"kube-proxy":              func(context.Context) *cobra.Command { return proxy.NewProxyCommand() },
	"kube-scheduler":          func(context.Context) *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 kubelet.NewKubeletCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kubectl":
		command := kubectl.NewDefaultKubectlCommand()
		if err := cli.RunNoErrOutput(command); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	newCommand, known := commands[name]
	if !known {
		names := []string{"etcd", "kubectl"}
		for n := range commands {
			names = append(names, n)
		}
		fmt.Fprintf(os.Stderr, "kube: unknown command %q; call it as one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	// The kubelet's constructor wants a context that ends on a signal; the others set up their own handler, and
	// a process may do that only once.
	ctx := context.Background()
	if name == "kubelet" {
		ctx = genericapiserver.SetupSignalContext()
	}
	os.Exit(cli.Run(newCommand(ctx)))
}
