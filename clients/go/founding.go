package oncelog

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const foundingKey = "oncelog-founding"

// founding is that of the cluster that a client began with: the first that an answer names. It
// goes with each call, and a node of another founding rejects the call.
type founding struct {
	mu    sync.Mutex
	known string // "": no node has named one
}

func (f *founding) named() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}

// learn keeps the first founding. A node of an older release names none.
func (f *founding) learn(target string, trailer metadata.MD) error {
	named := trailer.Get(foundingKey)
	if len(named) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == "" {
		f.known = named[0]
	}
	if f.known != named[0] {
		return fail(ErrOtherCluster, "%s is of the cluster founded as %s, this client began with the one "+
			"founded as %s. Remove the address from BootstrapServers, or stop the node there", target, named[0], f.known)
	}
	return nil
}

func (f *founding) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(f.unary), grpc.WithStreamInterceptor(f.stream)}
}

func (f *founding) unary(
	ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
	invoker grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if known := f.named(); known != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, foundingKey, known)
		return invoker(ctx, method, request, answer, conn, options...)
	}
	var trailer metadata.MD
	options = append(slices.Clip(options), grpc.Trailer(&trailer))
	if err := invoker(ctx, method, request, answer, conn, options...); err != nil {
		return err
	}
	return f.learn(conn.Target(), trailer)
}

func (f *founding) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	streamer grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if known := f.named(); known != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, foundingKey, known)
	}
	return streamer(ctx, desc, conn, method, options...)
}
