package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class SinkServiceGrpc {

  private SinkServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.SinkService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DrawTicketRequest,
      io.github.oncelog.client.proto.DrawTicketResponse> getDrawTicketMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DrawTicket",
      requestType = io.github.oncelog.client.proto.DrawTicketRequest.class,
      responseType = io.github.oncelog.client.proto.DrawTicketResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DrawTicketRequest,
      io.github.oncelog.client.proto.DrawTicketResponse> getDrawTicketMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DrawTicketRequest, io.github.oncelog.client.proto.DrawTicketResponse> getDrawTicketMethod;
    if ((getDrawTicketMethod = SinkServiceGrpc.getDrawTicketMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getDrawTicketMethod = SinkServiceGrpc.getDrawTicketMethod) == null) {
          SinkServiceGrpc.getDrawTicketMethod = getDrawTicketMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DrawTicketRequest, io.github.oncelog.client.proto.DrawTicketResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DrawTicket"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DrawTicketRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DrawTicketResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDrawTicketMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginBatchRequest,
      io.github.oncelog.client.proto.BeginBatchResponse> getBeginBatchMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "BeginBatch",
      requestType = io.github.oncelog.client.proto.BeginBatchRequest.class,
      responseType = io.github.oncelog.client.proto.BeginBatchResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginBatchRequest,
      io.github.oncelog.client.proto.BeginBatchResponse> getBeginBatchMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginBatchRequest, io.github.oncelog.client.proto.BeginBatchResponse> getBeginBatchMethod;
    if ((getBeginBatchMethod = SinkServiceGrpc.getBeginBatchMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getBeginBatchMethod = SinkServiceGrpc.getBeginBatchMethod) == null) {
          SinkServiceGrpc.getBeginBatchMethod = getBeginBatchMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.BeginBatchRequest, io.github.oncelog.client.proto.BeginBatchResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "BeginBatch"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BeginBatchRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BeginBatchResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getBeginBatchMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.EndBatchRequest,
      io.github.oncelog.client.proto.EndBatchResponse> getEndBatchMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "EndBatch",
      requestType = io.github.oncelog.client.proto.EndBatchRequest.class,
      responseType = io.github.oncelog.client.proto.EndBatchResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.EndBatchRequest,
      io.github.oncelog.client.proto.EndBatchResponse> getEndBatchMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.EndBatchRequest, io.github.oncelog.client.proto.EndBatchResponse> getEndBatchMethod;
    if ((getEndBatchMethod = SinkServiceGrpc.getEndBatchMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getEndBatchMethod = SinkServiceGrpc.getEndBatchMethod) == null) {
          SinkServiceGrpc.getEndBatchMethod = getEndBatchMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.EndBatchRequest, io.github.oncelog.client.proto.EndBatchResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "EndBatch"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.EndBatchRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.EndBatchResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getEndBatchMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortBatchRequest,
      io.github.oncelog.client.proto.AbortBatchResponse> getAbortBatchMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AbortBatch",
      requestType = io.github.oncelog.client.proto.AbortBatchRequest.class,
      responseType = io.github.oncelog.client.proto.AbortBatchResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortBatchRequest,
      io.github.oncelog.client.proto.AbortBatchResponse> getAbortBatchMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortBatchRequest, io.github.oncelog.client.proto.AbortBatchResponse> getAbortBatchMethod;
    if ((getAbortBatchMethod = SinkServiceGrpc.getAbortBatchMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getAbortBatchMethod = SinkServiceGrpc.getAbortBatchMethod) == null) {
          SinkServiceGrpc.getAbortBatchMethod = getAbortBatchMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.AbortBatchRequest, io.github.oncelog.client.proto.AbortBatchResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AbortBatch"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AbortBatchRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AbortBatchResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getAbortBatchMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListSinksRequest,
      io.github.oncelog.client.proto.ListSinksResponse> getListSinksMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListSinks",
      requestType = io.github.oncelog.client.proto.ListSinksRequest.class,
      responseType = io.github.oncelog.client.proto.ListSinksResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListSinksRequest,
      io.github.oncelog.client.proto.ListSinksResponse> getListSinksMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListSinksRequest, io.github.oncelog.client.proto.ListSinksResponse> getListSinksMethod;
    if ((getListSinksMethod = SinkServiceGrpc.getListSinksMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getListSinksMethod = SinkServiceGrpc.getListSinksMethod) == null) {
          SinkServiceGrpc.getListSinksMethod = getListSinksMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListSinksRequest, io.github.oncelog.client.proto.ListSinksResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListSinks"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListSinksRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListSinksResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListSinksMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeSinkRequest,
      io.github.oncelog.client.proto.DescribeSinkResponse> getDescribeSinkMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeSink",
      requestType = io.github.oncelog.client.proto.DescribeSinkRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeSinkResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeSinkRequest,
      io.github.oncelog.client.proto.DescribeSinkResponse> getDescribeSinkMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeSinkRequest, io.github.oncelog.client.proto.DescribeSinkResponse> getDescribeSinkMethod;
    if ((getDescribeSinkMethod = SinkServiceGrpc.getDescribeSinkMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getDescribeSinkMethod = SinkServiceGrpc.getDescribeSinkMethod) == null) {
          SinkServiceGrpc.getDescribeSinkMethod = getDescribeSinkMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeSinkRequest, io.github.oncelog.client.proto.DescribeSinkResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeSink"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeSinkRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeSinkResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeSinkMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResetSinkRequest,
      io.github.oncelog.client.proto.ResetSinkResponse> getResetSinkMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ResetSink",
      requestType = io.github.oncelog.client.proto.ResetSinkRequest.class,
      responseType = io.github.oncelog.client.proto.ResetSinkResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResetSinkRequest,
      io.github.oncelog.client.proto.ResetSinkResponse> getResetSinkMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResetSinkRequest, io.github.oncelog.client.proto.ResetSinkResponse> getResetSinkMethod;
    if ((getResetSinkMethod = SinkServiceGrpc.getResetSinkMethod) == null) {
      synchronized (SinkServiceGrpc.class) {
        if ((getResetSinkMethod = SinkServiceGrpc.getResetSinkMethod) == null) {
          SinkServiceGrpc.getResetSinkMethod = getResetSinkMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ResetSinkRequest, io.github.oncelog.client.proto.ResetSinkResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ResetSink"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResetSinkRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResetSinkResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getResetSinkMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static SinkServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SinkServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SinkServiceStub>() {
        @java.lang.Override
        public SinkServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SinkServiceStub(channel, callOptions);
        }
      };
    return SinkServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static SinkServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SinkServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SinkServiceBlockingV2Stub>() {
        @java.lang.Override
        public SinkServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SinkServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return SinkServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static SinkServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SinkServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SinkServiceBlockingStub>() {
        @java.lang.Override
        public SinkServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SinkServiceBlockingStub(channel, callOptions);
        }
      };
    return SinkServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static SinkServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SinkServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SinkServiceFutureStub>() {
        @java.lang.Override
        public SinkServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SinkServiceFutureStub(channel, callOptions);
        }
      };
    return SinkServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * The number of a run, above all earlier ones of the sink. Fences nothing.
     * </pre>
     */
    default void drawTicket(io.github.oncelog.client.proto.DrawTicketRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DrawTicketResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDrawTicketMethod(), responseObserver);
    }

    /**
     * <pre>
     * Begins a batch for all its tasks; each of them calls it, and gets the same transaction.
     * </pre>
     */
    default void beginBatch(io.github.oncelog.client.proto.BeginBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginBatchResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getBeginBatchMethod(), responseObserver);
    }

    /**
     * <pre>
     * Publishes what the winners have staged. To be repeated until it is answered.
     * </pre>
     */
    default void endBatch(io.github.oncelog.client.proto.EndBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.EndBatchResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getEndBatchMethod(), responseObserver);
    }

    /**
     * <pre>
     * Drops what a batch has staged.
     * </pre>
     */
    default void abortBatch(io.github.oncelog.client.proto.AbortBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortBatchResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAbortBatchMethod(), responseObserver);
    }

    /**
     */
    default void listSinks(io.github.oncelog.client.proto.ListSinksRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListSinksResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListSinksMethod(), responseObserver);
    }

    /**
     */
    default void describeSink(io.github.oncelog.client.proto.DescribeSinkRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeSinkResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeSinkMethod(), responseObserver);
    }

    /**
     * <pre>
     * An operator's word: the next batch may be any, of any query; all runs are fenced.
     * </pre>
     */
    default void resetSink(io.github.oncelog.client.proto.ResetSinkRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResetSinkResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getResetSinkMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service SinkService.
   */
  public static abstract class SinkServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return SinkServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service SinkService.
   */
  public static final class SinkServiceStub
      extends io.grpc.stub.AbstractAsyncStub<SinkServiceStub> {
    private SinkServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SinkServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SinkServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * The number of a run, above all earlier ones of the sink. Fences nothing.
     * </pre>
     */
    public void drawTicket(io.github.oncelog.client.proto.DrawTicketRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DrawTicketResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDrawTicketMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Begins a batch for all its tasks; each of them calls it, and gets the same transaction.
     * </pre>
     */
    public void beginBatch(io.github.oncelog.client.proto.BeginBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginBatchResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getBeginBatchMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Publishes what the winners have staged. To be repeated until it is answered.
     * </pre>
     */
    public void endBatch(io.github.oncelog.client.proto.EndBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.EndBatchResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getEndBatchMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Drops what a batch has staged.
     * </pre>
     */
    public void abortBatch(io.github.oncelog.client.proto.AbortBatchRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortBatchResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAbortBatchMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void listSinks(io.github.oncelog.client.proto.ListSinksRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListSinksResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListSinksMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void describeSink(io.github.oncelog.client.proto.DescribeSinkRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeSinkResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeSinkMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * An operator's word: the next batch may be any, of any query; all runs are fenced.
     * </pre>
     */
    public void resetSink(io.github.oncelog.client.proto.ResetSinkRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResetSinkResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getResetSinkMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service SinkService.
   */
  public static final class SinkServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<SinkServiceBlockingV2Stub> {
    private SinkServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SinkServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SinkServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * The number of a run, above all earlier ones of the sink. Fences nothing.
     * </pre>
     */
    public io.github.oncelog.client.proto.DrawTicketResponse drawTicket(io.github.oncelog.client.proto.DrawTicketRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDrawTicketMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Begins a batch for all its tasks; each of them calls it, and gets the same transaction.
     * </pre>
     */
    public io.github.oncelog.client.proto.BeginBatchResponse beginBatch(io.github.oncelog.client.proto.BeginBatchRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getBeginBatchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Publishes what the winners have staged. To be repeated until it is answered.
     * </pre>
     */
    public io.github.oncelog.client.proto.EndBatchResponse endBatch(io.github.oncelog.client.proto.EndBatchRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getEndBatchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops what a batch has staged.
     * </pre>
     */
    public io.github.oncelog.client.proto.AbortBatchResponse abortBatch(io.github.oncelog.client.proto.AbortBatchRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAbortBatchMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListSinksResponse listSinks(io.github.oncelog.client.proto.ListSinksRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListSinksMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeSinkResponse describeSink(io.github.oncelog.client.proto.DescribeSinkRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeSinkMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * An operator's word: the next batch may be any, of any query; all runs are fenced.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResetSinkResponse resetSink(io.github.oncelog.client.proto.ResetSinkRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getResetSinkMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service SinkService.
   */
  public static final class SinkServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<SinkServiceBlockingStub> {
    private SinkServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SinkServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SinkServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * The number of a run, above all earlier ones of the sink. Fences nothing.
     * </pre>
     */
    public io.github.oncelog.client.proto.DrawTicketResponse drawTicket(io.github.oncelog.client.proto.DrawTicketRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDrawTicketMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Begins a batch for all its tasks; each of them calls it, and gets the same transaction.
     * </pre>
     */
    public io.github.oncelog.client.proto.BeginBatchResponse beginBatch(io.github.oncelog.client.proto.BeginBatchRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getBeginBatchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Publishes what the winners have staged. To be repeated until it is answered.
     * </pre>
     */
    public io.github.oncelog.client.proto.EndBatchResponse endBatch(io.github.oncelog.client.proto.EndBatchRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getEndBatchMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops what a batch has staged.
     * </pre>
     */
    public io.github.oncelog.client.proto.AbortBatchResponse abortBatch(io.github.oncelog.client.proto.AbortBatchRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAbortBatchMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListSinksResponse listSinks(io.github.oncelog.client.proto.ListSinksRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListSinksMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeSinkResponse describeSink(io.github.oncelog.client.proto.DescribeSinkRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeSinkMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * An operator's word: the next batch may be any, of any query; all runs are fenced.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResetSinkResponse resetSink(io.github.oncelog.client.proto.ResetSinkRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getResetSinkMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service SinkService.
   */
  public static final class SinkServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<SinkServiceFutureStub> {
    private SinkServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SinkServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SinkServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * The number of a run, above all earlier ones of the sink. Fences nothing.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DrawTicketResponse> drawTicket(
        io.github.oncelog.client.proto.DrawTicketRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDrawTicketMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Begins a batch for all its tasks; each of them calls it, and gets the same transaction.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.BeginBatchResponse> beginBatch(
        io.github.oncelog.client.proto.BeginBatchRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getBeginBatchMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Publishes what the winners have staged. To be repeated until it is answered.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.EndBatchResponse> endBatch(
        io.github.oncelog.client.proto.EndBatchRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getEndBatchMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Drops what a batch has staged.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.AbortBatchResponse> abortBatch(
        io.github.oncelog.client.proto.AbortBatchRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAbortBatchMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListSinksResponse> listSinks(
        io.github.oncelog.client.proto.ListSinksRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListSinksMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeSinkResponse> describeSink(
        io.github.oncelog.client.proto.DescribeSinkRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeSinkMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * An operator's word: the next batch may be any, of any query; all runs are fenced.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ResetSinkResponse> resetSink(
        io.github.oncelog.client.proto.ResetSinkRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getResetSinkMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_DRAW_TICKET = 0;
  private static final int METHODID_BEGIN_BATCH = 1;
  private static final int METHODID_END_BATCH = 2;
  private static final int METHODID_ABORT_BATCH = 3;
  private static final int METHODID_LIST_SINKS = 4;
  private static final int METHODID_DESCRIBE_SINK = 5;
  private static final int METHODID_RESET_SINK = 6;

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
        case METHODID_DRAW_TICKET:
          serviceImpl.drawTicket((io.github.oncelog.client.proto.DrawTicketRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DrawTicketResponse>) responseObserver);
          break;
        case METHODID_BEGIN_BATCH:
          serviceImpl.beginBatch((io.github.oncelog.client.proto.BeginBatchRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginBatchResponse>) responseObserver);
          break;
        case METHODID_END_BATCH:
          serviceImpl.endBatch((io.github.oncelog.client.proto.EndBatchRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.EndBatchResponse>) responseObserver);
          break;
        case METHODID_ABORT_BATCH:
          serviceImpl.abortBatch((io.github.oncelog.client.proto.AbortBatchRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortBatchResponse>) responseObserver);
          break;
        case METHODID_LIST_SINKS:
          serviceImpl.listSinks((io.github.oncelog.client.proto.ListSinksRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListSinksResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_SINK:
          serviceImpl.describeSink((io.github.oncelog.client.proto.DescribeSinkRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeSinkResponse>) responseObserver);
          break;
        case METHODID_RESET_SINK:
          serviceImpl.resetSink((io.github.oncelog.client.proto.ResetSinkRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResetSinkResponse>) responseObserver);
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
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getDrawTicketMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DrawTicketRequest,
              io.github.oncelog.client.proto.DrawTicketResponse>(
                service, METHODID_DRAW_TICKET)))
        .addMethod(
          getBeginBatchMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.BeginBatchRequest,
              io.github.oncelog.client.proto.BeginBatchResponse>(
                service, METHODID_BEGIN_BATCH)))
        .addMethod(
          getEndBatchMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.EndBatchRequest,
              io.github.oncelog.client.proto.EndBatchResponse>(
                service, METHODID_END_BATCH)))
        .addMethod(
          getAbortBatchMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.AbortBatchRequest,
              io.github.oncelog.client.proto.AbortBatchResponse>(
                service, METHODID_ABORT_BATCH)))
        .addMethod(
          getListSinksMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListSinksRequest,
              io.github.oncelog.client.proto.ListSinksResponse>(
                service, METHODID_LIST_SINKS)))
        .addMethod(
          getDescribeSinkMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeSinkRequest,
              io.github.oncelog.client.proto.DescribeSinkResponse>(
                service, METHODID_DESCRIBE_SINK)))
        .addMethod(
          getResetSinkMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ResetSinkRequest,
              io.github.oncelog.client.proto.ResetSinkResponse>(
                service, METHODID_RESET_SINK)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (SinkServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getDrawTicketMethod())
              .addMethod(getBeginBatchMethod())
              .addMethod(getEndBatchMethod())
              .addMethod(getAbortBatchMethod())
              .addMethod(getListSinksMethod())
              .addMethod(getDescribeSinkMethod())
              .addMethod(getResetSinkMethod())
              .build();
        }
      }
    }
    return result;
  }
}
