// Controller of StatefulSets of Kubernetes, without the rest of the controller manager.
//
//	controller ADDRESS TOKEN CA-FILE
package main

import (
	"context"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

func main() {
	client := kubernetes.NewForConfigOrDie(&rest.Config{
		Host:            os.Args[1],
		BearerToken:     os.Args[2],
		TLSClientConfig: rest.TLSClientConfig{CAFile: os.Args[3]},
	})
	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := statefulset.NewStatefulSetController(
		ctx,
		factory.Core().V1().Pods(),
		factory.Apps().V1().StatefulSets(),
		factory.Core().V1().PersistentVolumeClaims(),
		factory.Apps().V1().ControllerRevisions(),
		client,
	)
	factory.Start(ctx.Done())
	controller.Run(ctx, 1)
}
