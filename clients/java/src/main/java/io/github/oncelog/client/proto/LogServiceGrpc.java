package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class LogServiceGrpc {

  private LogServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.LogService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest,
      io.github.oncelog.client.proto.ProduceResponse> getProduceMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "Produce",
      requestType = io.github.oncelog.client.proto.ProduceRequest.class,
      responseType = io.github.oncelog.client.proto.ProduceResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest,
      io.github.oncelog.client.proto.ProduceResponse> getProduceMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest, io.github.oncelog.client.proto.ProduceResponse> getProduceMethod;
    if ((getProduceMethod = LogServiceGrpc.getProduceMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getProduceMethod = LogServiceGrpc.getProduceMethod) == null) {
          LogServiceGrpc.getProduceMethod = getProduceMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ProduceRequest, io.github.oncelog.client.proto.ProduceResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "Produce"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ProduceRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ProduceResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getProduceMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest,
      io.github.oncelog.client.proto.ProduceResponse> getProduceStreamMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ProduceStream",
      requestType = io.github.oncelog.client.proto.ProduceRequest.class,
      responseType = io.github.oncelog.client.proto.ProduceResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest,
      io.github.oncelog.client.proto.ProduceResponse> getProduceStreamMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ProduceRequest, io.github.oncelog.client.proto.ProduceResponse> getProduceStreamMethod;
    if ((getProduceStreamMethod = LogServiceGrpc.getProduceStreamMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getProduceStreamMethod = LogServiceGrpc.getProduceStreamMethod) == null) {
          LogServiceGrpc.getProduceStreamMethod = getProduceStreamMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ProduceRequest, io.github.oncelog.client.proto.ProduceResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ProduceStream"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ProduceRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ProduceResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getProduceStreamMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchRequest,
      io.github.oncelog.client.proto.FetchResponse> getFetchMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "Fetch",
      requestType = io.github.oncelog.client.proto.FetchRequest.class,
      responseType = io.github.oncelog.client.proto.FetchResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchRequest,
      io.github.oncelog.client.proto.FetchResponse> getFetchMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchRequest, io.github.oncelog.client.proto.FetchResponse> getFetchMethod;
    if ((getFetchMethod = LogServiceGrpc.getFetchMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getFetchMethod = LogServiceGrpc.getFetchMethod) == null) {
          LogServiceGrpc.getFetchMethod = getFetchMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.FetchRequest, io.github.oncelog.client.proto.FetchResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "Fetch"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FetchRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FetchResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getFetchMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SubscribeRequest,
      io.github.oncelog.client.proto.FetchResponse> getSubscribeMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "Subscribe",
      requestType = io.github.oncelog.client.proto.SubscribeRequest.class,
      responseType = io.github.oncelog.client.proto.FetchResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SubscribeRequest,
      io.github.oncelog.client.proto.FetchResponse> getSubscribeMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SubscribeRequest, io.github.oncelog.client.proto.FetchResponse> getSubscribeMethod;
    if ((getSubscribeMethod = LogServiceGrpc.getSubscribeMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getSubscribeMethod = LogServiceGrpc.getSubscribeMethod) == null) {
          LogServiceGrpc.getSubscribeMethod = getSubscribeMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.SubscribeRequest, io.github.oncelog.client.proto.FetchResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "Subscribe"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.SubscribeRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FetchResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getSubscribeMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListOffsetsRequest,
      io.github.oncelog.client.proto.ListOffsetsResponse> getListOffsetsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListOffsets",
      requestType = io.github.oncelog.client.proto.ListOffsetsRequest.class,
      responseType = io.github.oncelog.client.proto.ListOffsetsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListOffsetsRequest,
      io.github.oncelog.client.proto.ListOffsetsResponse> getListOffsetsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListOffsetsRequest, io.github.oncelog.client.proto.ListOffsetsResponse> getListOffsetsMethod;
    if ((getListOffsetsMethod = LogServiceGrpc.getListOffsetsMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getListOffsetsMethod = LogServiceGrpc.getListOffsetsMethod) == null) {
          LogServiceGrpc.getListOffsetsMethod = getListOffsetsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListOffsetsRequest, io.github.oncelog.client.proto.ListOffsetsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListOffsets"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListOffsetsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListOffsetsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListOffsetsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResolveSequenceRequest,
      io.github.oncelog.client.proto.ResolveSequenceResponse> getResolveSequenceMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ResolveSequence",
      requestType = io.github.oncelog.client.proto.ResolveSequenceRequest.class,
      responseType = io.github.oncelog.client.proto.ResolveSequenceResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResolveSequenceRequest,
      io.github.oncelog.client.proto.ResolveSequenceResponse> getResolveSequenceMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResolveSequenceRequest, io.github.oncelog.client.proto.ResolveSequenceResponse> getResolveSequenceMethod;
    if ((getResolveSequenceMethod = LogServiceGrpc.getResolveSequenceMethod) == null) {
      synchronized (LogServiceGrpc.class) {
        if ((getResolveSequenceMethod = LogServiceGrpc.getResolveSequenceMethod) == null) {
          LogServiceGrpc.getResolveSequenceMethod = getResolveSequenceMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ResolveSequenceRequest, io.github.oncelog.client.proto.ResolveSequenceResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ResolveSequence"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResolveSequenceRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResolveSequenceResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getResolveSequenceMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static LogServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<LogServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<LogServiceStub>() {
        @java.lang.Override
        public LogServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new LogServiceStub(channel, callOptions);
        }
      };
    return LogServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static LogServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<LogServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<LogServiceBlockingV2Stub>() {
        @java.lang.Override
        public LogServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new LogServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return LogServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static LogServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<LogServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<LogServiceBlockingStub>() {
        @java.lang.Override
        public LogServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new LogServiceBlockingStub(channel, callOptions);
        }
      };
    return LogServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static LogServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<LogServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<LogServiceFutureStub>() {
        @java.lang.Override
        public LogServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new LogServiceFutureStub(channel, callOptions);
        }
      };
    return LogServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * One or more batches, answered together. Calls are not ordered among each
     * other: a batch whose predecessor has not arrived waits a bounded time for
     * it. Use ProduceStream to keep several batches in flight.
     * </pre>
     */
    default void produce(io.github.oncelog.client.proto.ProduceRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getProduceMethod(), responseObserver);
    }

    /**
     * <pre>
     * The ordered path. Batches are taken in the order sent; results come back
     * as they are known, matched by BatchResult.id.
     * </pre>
     */
    default io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceRequest> produceStream(
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getProduceStreamMethod(), responseObserver);
    }

    /**
     * <pre>
     * Reads whole batches from one or more partitions; waits for data if asked.
     * </pre>
     */
    default void fetch(io.github.oncelog.client.proto.FetchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getFetchMethod(), responseObserver);
    }

    /**
     * <pre>
     * Like Fetch, without end: the server sends what is there and what comes.
     * </pre>
     */
    default void subscribe(io.github.oncelog.client.proto.SubscribeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSubscribeMethod(), responseObserver);
    }

    /**
     */
    default void listOffsets(io.github.oncelog.client.proto.ListOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListOffsetsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListOffsetsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Answers "did this sequence commit, and where?" for a client that lost the
     * acknowledgement.
     * </pre>
     */
    default void resolveSequence(io.github.oncelog.client.proto.ResolveSequenceRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResolveSequenceResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getResolveSequenceMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service LogService.
   */
  public static abstract class LogServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return LogServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service LogService.
   */
  public static final class LogServiceStub
      extends io.grpc.stub.AbstractAsyncStub<LogServiceStub> {
    private LogServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected LogServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new LogServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * One or more batches, answered together. Calls are not ordered among each
     * other: a batch whose predecessor has not arrived waits a bounded time for
     * it. Use ProduceStream to keep several batches in flight.
     * </pre>
     */
    public void produce(io.github.oncelog.client.proto.ProduceRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getProduceMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The ordered path. Batches are taken in the order sent; results come back
     * as they are known, matched by BatchResult.id.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceRequest> produceStream(
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncBidiStreamingCall(
          getChannel().newCall(getProduceStreamMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * Reads whole batches from one or more partitions; waits for data if asked.
     * </pre>
     */
    public void fetch(io.github.oncelog.client.proto.FetchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getFetchMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Like Fetch, without end: the server sends what is there and what comes.
     * </pre>
     */
    public void subscribe(io.github.oncelog.client.proto.SubscribeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getSubscribeMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void listOffsets(io.github.oncelog.client.proto.ListOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListOffsetsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListOffsetsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Answers "did this sequence commit, and where?" for a client that lost the
     * acknowledgement.
     * </pre>
     */
    public void resolveSequence(io.github.oncelog.client.proto.ResolveSequenceRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResolveSequenceResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getResolveSequenceMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service LogService.
   */
  public static final class LogServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<LogServiceBlockingV2Stub> {
    private LogServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected LogServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new LogServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * One or more batches, answered together. Calls are not ordered among each
     * other: a batch whose predecessor has not arrived waits a bounded time for
     * it. Use ProduceStream to keep several batches in flight.
     * </pre>
     */
    public io.github.oncelog.client.proto.ProduceResponse produce(io.github.oncelog.client.proto.ProduceRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getProduceMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The ordered path. Batches are taken in the order sent; results come back
     * as they are known, matched by BatchResult.id.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<io.github.oncelog.client.proto.ProduceRequest, io.github.oncelog.client.proto.ProduceResponse>
        produceStream() {
      return io.grpc.stub.ClientCalls.blockingBidiStreamingCall(
          getChannel(), getProduceStreamMethod(), getCallOptions());
    }

    /**
     * <pre>
     * Reads whole batches from one or more partitions; waits for data if asked.
     * </pre>
     */
    public io.github.oncelog.client.proto.FetchResponse fetch(io.github.oncelog.client.proto.FetchRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getFetchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Like Fetch, without end: the server sends what is there and what comes.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<?, io.github.oncelog.client.proto.FetchResponse>
        subscribe(io.github.oncelog.client.proto.SubscribeRequest request) {
      return io.grpc.stub.ClientCalls.blockingV2ServerStreamingCall(
          getChannel(), getSubscribeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListOffsetsResponse listOffsets(io.github.oncelog.client.proto.ListOffsetsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Answers "did this sequence commit, and where?" for a client that lost the
     * acknowledgement.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResolveSequenceResponse resolveSequence(io.github.oncelog.client.proto.ResolveSequenceRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getResolveSequenceMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service LogService.
   */
  public static final class LogServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<LogServiceBlockingStub> {
    private LogServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected LogServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new LogServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * One or more batches, answered together. Calls are not ordered among each
     * other: a batch whose predecessor has not arrived waits a bounded time for
     * it. Use ProduceStream to keep several batches in flight.
     * </pre>
     */
    public io.github.oncelog.client.proto.ProduceResponse produce(io.github.oncelog.client.proto.ProduceRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getProduceMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads whole batches from one or more partitions; waits for data if asked.
     * </pre>
     */
    public io.github.oncelog.client.proto.FetchResponse fetch(io.github.oncelog.client.proto.FetchRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getFetchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Like Fetch, without end: the server sends what is there and what comes.
     * </pre>
     */
    public java.util.Iterator<io.github.oncelog.client.proto.FetchResponse> subscribe(
        io.github.oncelog.client.proto.SubscribeRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getSubscribeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListOffsetsResponse listOffsets(io.github.oncelog.client.proto.ListOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Answers "did this sequence commit, and where?" for a client that lost the
     * acknowledgement.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResolveSequenceResponse resolveSequence(io.github.oncelog.client.proto.ResolveSequenceRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getResolveSequenceMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service LogService.
   */
  public static final class LogServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<LogServiceFutureStub> {
    private LogServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected LogServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new LogServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * One or more batches, answered together. Calls are not ordered among each
     * other: a batch whose predecessor has not arrived waits a bounded time for
     * it. Use ProduceStream to keep several batches in flight.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ProduceResponse> produce(
        io.github.oncelog.client.proto.ProduceRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getProduceMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Reads whole batches from one or more partitions; waits for data if asked.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.FetchResponse> fetch(
        io.github.oncelog.client.proto.FetchRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getFetchMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListOffsetsResponse> listOffsets(
        io.github.oncelog.client.proto.ListOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListOffsetsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Answers "did this sequence commit, and where?" for a client that lost the
     * acknowledgement.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ResolveSequenceResponse> resolveSequence(
        io.github.oncelog.client.proto.ResolveSequenceRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getResolveSequenceMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_PRODUCE = 0;
  private static final int METHODID_FETCH = 1;
  private static final int METHODID_SUBSCRIBE = 2;
  private static final int METHODID_LIST_OFFSETS = 3;
  private static final int METHODID_RESOLVE_SEQUENCE = 4;
  private static final int METHODID_PRODUCE_STREAM = 5;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final AsyncService serviceImpl;
    private final int methodId;

    MethodHandlers(AsyncService serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_PRODUCE:
          serviceImpl.produce((io.github.oncelog.client.proto.ProduceRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse>) responseObserver);
          break;
        case METHODID_FETCH:
          serviceImpl.fetch((io.github.oncelog.client.proto.FetchRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse>) responseObserver);
          break;
        case METHODID_SUBSCRIBE:
          serviceImpl.subscribe((io.github.oncelog.client.proto.SubscribeRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchResponse>) responseObserver);
          break;
        case METHODID_LIST_OFFSETS:
          serviceImpl.listOffsets((io.github.oncelog.client.proto.ListOffsetsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListOffsetsResponse>) responseObserver);
          break;
        case METHODID_RESOLVE_SEQUENCE:
          serviceImpl.resolveSequence((io.github.oncelog.client.proto.ResolveSequenceRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResolveSequenceResponse>) responseObserver);
          break;
        default:
          throw new AssertionError();
      }
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public io.grpc.stub.StreamObserver<Req> invoke(
        io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_PRODUCE_STREAM:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.produceStream(
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ProduceResponse>) responseObserver);
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getProduceMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ProduceRequest,
              io.github.oncelog.client.proto.ProduceResponse>(
                service, METHODID_PRODUCE)))
        .addMethod(
          getProduceStreamMethod(),
          io.grpc.stub.ServerCalls.asyncBidiStreamingCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ProduceRequest,
              io.github.oncelog.client.proto.ProduceResponse>(
                service, METHODID_PRODUCE_STREAM)))
        .addMethod(
          getFetchMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.FetchRequest,
              io.github.oncelog.client.proto.FetchResponse>(
                service, METHODID_FETCH)))
        .addMethod(
          getSubscribeMethod(),
          io.grpc.stub.ServerCalls.asyncServerStreamingCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.SubscribeRequest,
              io.github.oncelog.client.proto.FetchResponse>(
                service, METHODID_SUBSCRIBE)))
        .addMethod(
          getListOffsetsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListOffsetsRequest,
              io.github.oncelog.client.proto.ListOffsetsResponse>(
                service, METHODID_LIST_OFFSETS)))
        .addMethod(
          getResolveSequenceMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ResolveSequenceRequest,
              io.github.oncelog.client.proto.ResolveSequenceResponse>(
                service, METHODID_RESOLVE_SEQUENCE)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (LogServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getProduceMethod())
              .addMethod(getProduceStreamMethod())
              .addMethod(getFetchMethod())
              .addMethod(getSubscribeMethod())
              .addMethod(getListOffsetsMethod())
              .addMethod(getResolveSequenceMethod())
              .build();
        }
      }
    }
    return result;
  }
}
