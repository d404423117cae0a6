// Copyright: (c) 2026, the corral authors
// SPDX-License-Identifier: GPL-3.0-or-later

// Command policies has kube-network-policies decide, by NetworkPolicies, on the first packet of each connection from or to a pod. The lab's rules of
// iptables queue these packets (lab/corral_lab/network.py): kube-network-policies' own ones need CONFIG_NFT_QUEUE, which not every kernel has, know
// the pods of one node alone, and leave out what pods send to the node. It drops what no policy allows; here that gets a mark, and a rule rejects it.
package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	_ "unsafe" // for go:linkname

	"github.com/florianl/go-nfqueue"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

// packet is kube-network-policies' own, which it does not export; the fields are those of the version that go.mod names.
type packet struct {
	id               uint32
	family           v1.IPFamily
	source, target   net.IP
	protocol         v1.Protocol
	fromPort, toPort int
	payload          []byte
}

//go:linkname parse sigs.k8s.io/kube-network-policies/pkg/networkpolicy.parsePacket
func parse(bytes []byte) (packet, error)

//go:linkname allows sigs.k8s.io/kube-network-policies/pkg/networkpolicy.(*Controller).evaluatePacket
func allows(controller *networkpolicy.Controller, ctx context.Context, packet packet) bool

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "credentials for the API server")
	queue := flag.Uint("queue", 0, "number of the netfilter queue")
	mark := flag.Int("mark", 0, "mark for packets that no policy allows")
	health := flag.String("health", "", "address that answers once the queue is served")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, uint16(*queue), *mark, *health); err != nil {
		klog.Exit(err)
	}
}

func run(ctx context.Context, kubeconfig string, queue uint16, mark int, health string) error {
	connection, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	// The address of a pod that has ended may be another's by now.
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	}))
	// It is asked and never run, so it makes no rules and follows no container runtime.
	controller, err := networkpolicy.NewController(client, factory.Networking().V1().NetworkPolicies(), factory.Core().V1().Namespaces(),
		pods.Core().V1().Pods(), nil, nil, nil, nil, networkpolicy.Config{})
	if err != nil {
		return err
	}
	for _, each := range []informers.SharedInformerFactory{factory, pods} {
		each.Start(ctx.Done())
		each.WaitForCacheSync(ctx.Done())
	}

	packets, err := nfqueue.Open(&nfqueue.Config{
		NfQueue: queue, Flags: nfqueue.NfQaCfgFlagGSO, MaxPacketLen: 128, MaxQueueLen: 4096, Copymode: nfqueue.NfQnlCopyPacket,
	})
	if err != nil {
		return err
	}
	defer packets.Close()
	decide := func(queued nfqueue.Attribute) int {
		packet, err := parse(*queued.Payload)
		if err == nil && allows(controller, ctx, packet) {
			err = packets.SetVerdict(*queued.PacketID, nfqueue.NfAccept)
		} else {
			err = packets.SetVerdictWithMark(*queued.PacketID, nfqueue.NfAccept, mark)
		}
		if err != nil {
			klog.Error(err)
		}
		return 0
	}
	goOn := func(err error) int {
		if ctx.Err() == nil {
			klog.Error(err)
		}
		return 0
	}
	if err := packets.RegisterWithErrorFunc(ctx, decide, goOn); err != nil {
		return err
	}
	server := &http.Server{Addr: health, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
