package io.github.oncelog.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;

/**
 * The founding of the cluster that a client began with: the first that an answer names. It goes
 * with each call, and a node of another founding rejects the call. For any thread.
 */
final class Founding implements ClientInterceptor {
  private static final Metadata.Key<String> KEY =
      Metadata.Key.of("oncelog-founding", Metadata.ASCII_STRING_MARSHALLER);

  private String known; // null: no node has named one

  private synchronized String known() {
    return known;
  }

  /** Keeps the first founding; says whether it is this one. An older release names none. */
  private synchronized boolean learn(String named) {
    if (known == null) {
      known = named;
    }
    return named == null || named.equals(known);
  }

  @Override
  public <Q, A> ClientCall<Q, A> interceptCall(
      MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
    return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
      @Override
      public void start(Listener<A> listener, Metadata headers) {
        String named = known();
        if (named != null) {
          headers.put(KEY, named);
          super.start(listener, headers);
        } else {
          super.start(new Learning<>(listener), headers);
        }
      }
    };
  }

  private final class Learning<A> extends SimpleForwardingClientCallListener<A> {
    Learning(ClientCall.Listener<A> listener) {
      super(listener);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      String named = trailers.get(KEY);
      if (!status.isOk() || learn(named)) {
        super.onClose(status, trailers);
        return;
      }
      String text =
          "the node is of the cluster founded as %s, this client began with the one founded as %s."
              + " Remove the address from bootstrapServers, or stop the node there";
      super.onClose(
          Status.FAILED_PRECONDITION.withCause(
              new OncelogException(ErrorKind.OTHER_CLUSTER, text, named, known())),
          trailers);
    }
  }
}
