// Package oncelog is the Go client of Oncelog, a replicated, partitioned log that keeps
// every record exactly once.
//
// A [Producer] may retry as often as it likes, its leader may be killed between the append
// and the acknowledgement, and each record is still in the log one time, in the order it was
// sent. A [Consumer] reads records in offset order; an [Admin] manages topics and looks at
// the cluster.
//
//	producer, err := oncelog.NewProducer("localhost:7001")
//	...
//	delivery, err := producer.Send(ctx, oncelog.Message{Topic: "greetings", Value: []byte("hello")})
//	...
//	metadata, err := delivery.Wait(ctx)
//
// The client's behaviour on the wire is laid down in docs/protocol.md; settings and errors
// mean the same as in the Python client.
//
// Errors form a tree: errors.Is(err, oncelog.ErrRetriable) is true for all errors below it,
// errors.As(err, &e) with an *[Error] gives the details.
package oncelog

// Version is that of this client.
const Version = "0.1.0"
