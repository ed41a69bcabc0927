package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class TransactionServiceGrpc {

  private TransactionServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.TransactionService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginTransactionRequest,
      io.github.oncelog.client.proto.BeginTransactionResponse> getBeginTransactionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "BeginTransaction",
      requestType = io.github.oncelog.client.proto.BeginTransactionRequest.class,
      responseType = io.github.oncelog.client.proto.BeginTransactionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginTransactionRequest,
      io.github.oncelog.client.proto.BeginTransactionResponse> getBeginTransactionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BeginTransactionRequest, io.github.oncelog.client.proto.BeginTransactionResponse> getBeginTransactionMethod;
    if ((getBeginTransactionMethod = TransactionServiceGrpc.getBeginTransactionMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getBeginTransactionMethod = TransactionServiceGrpc.getBeginTransactionMethod) == null) {
          TransactionServiceGrpc.getBeginTransactionMethod = getBeginTransactionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.BeginTransactionRequest, io.github.oncelog.client.proto.BeginTransactionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "BeginTransaction"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BeginTransactionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BeginTransactionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getBeginTransactionMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.KeepTransactionsAliveRequest,
      io.github.oncelog.client.proto.KeepTransactionsAliveResponse> getKeepTransactionsAliveMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "KeepTransactionsAlive",
      requestType = io.github.oncelog.client.proto.KeepTransactionsAliveRequest.class,
      responseType = io.github.oncelog.client.proto.KeepTransactionsAliveResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.KeepTransactionsAliveRequest,
      io.github.oncelog.client.proto.KeepTransactionsAliveResponse> getKeepTransactionsAliveMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.KeepTransactionsAliveRequest, io.github.oncelog.client.proto.KeepTransactionsAliveResponse> getKeepTransactionsAliveMethod;
    if ((getKeepTransactionsAliveMethod = TransactionServiceGrpc.getKeepTransactionsAliveMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getKeepTransactionsAliveMethod = TransactionServiceGrpc.getKeepTransactionsAliveMethod) == null) {
          TransactionServiceGrpc.getKeepTransactionsAliveMethod = getKeepTransactionsAliveMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.KeepTransactionsAliveRequest, io.github.oncelog.client.proto.KeepTransactionsAliveResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "KeepTransactionsAlive"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.KeepTransactionsAliveRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.KeepTransactionsAliveResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getKeepTransactionsAliveMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitTransactionRequest,
      io.github.oncelog.client.proto.CommitTransactionResponse> getCommitTransactionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CommitTransaction",
      requestType = io.github.oncelog.client.proto.CommitTransactionRequest.class,
      responseType = io.github.oncelog.client.proto.CommitTransactionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitTransactionRequest,
      io.github.oncelog.client.proto.CommitTransactionResponse> getCommitTransactionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitTransactionRequest, io.github.oncelog.client.proto.CommitTransactionResponse> getCommitTransactionMethod;
    if ((getCommitTransactionMethod = TransactionServiceGrpc.getCommitTransactionMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getCommitTransactionMethod = TransactionServiceGrpc.getCommitTransactionMethod) == null) {
          TransactionServiceGrpc.getCommitTransactionMethod = getCommitTransactionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.CommitTransactionRequest, io.github.oncelog.client.proto.CommitTransactionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CommitTransaction"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CommitTransactionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CommitTransactionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getCommitTransactionMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortTransactionRequest,
      io.github.oncelog.client.proto.AbortTransactionResponse> getAbortTransactionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AbortTransaction",
      requestType = io.github.oncelog.client.proto.AbortTransactionRequest.class,
      responseType = io.github.oncelog.client.proto.AbortTransactionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortTransactionRequest,
      io.github.oncelog.client.proto.AbortTransactionResponse> getAbortTransactionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AbortTransactionRequest, io.github.oncelog.client.proto.AbortTransactionResponse> getAbortTransactionMethod;
    if ((getAbortTransactionMethod = TransactionServiceGrpc.getAbortTransactionMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getAbortTransactionMethod = TransactionServiceGrpc.getAbortTransactionMethod) == null) {
          TransactionServiceGrpc.getAbortTransactionMethod = getAbortTransactionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.AbortTransactionRequest, io.github.oncelog.client.proto.AbortTransactionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AbortTransaction"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AbortTransactionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AbortTransactionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getAbortTransactionMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListTransactionsRequest,
      io.github.oncelog.client.proto.ListTransactionsResponse> getListTransactionsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListTransactions",
      requestType = io.github.oncelog.client.proto.ListTransactionsRequest.class,
      responseType = io.github.oncelog.client.proto.ListTransactionsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListTransactionsRequest,
      io.github.oncelog.client.proto.ListTransactionsResponse> getListTransactionsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListTransactionsRequest, io.github.oncelog.client.proto.ListTransactionsResponse> getListTransactionsMethod;
    if ((getListTransactionsMethod = TransactionServiceGrpc.getListTransactionsMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getListTransactionsMethod = TransactionServiceGrpc.getListTransactionsMethod) == null) {
          TransactionServiceGrpc.getListTransactionsMethod = getListTransactionsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListTransactionsRequest, io.github.oncelog.client.proto.ListTransactionsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListTransactions"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListTransactionsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListTransactionsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListTransactionsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTransactionRequest,
      io.github.oncelog.client.proto.DescribeTransactionResponse> getDescribeTransactionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeTransaction",
      requestType = io.github.oncelog.client.proto.DescribeTransactionRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeTransactionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTransactionRequest,
      io.github.oncelog.client.proto.DescribeTransactionResponse> getDescribeTransactionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTransactionRequest, io.github.oncelog.client.proto.DescribeTransactionResponse> getDescribeTransactionMethod;
    if ((getDescribeTransactionMethod = TransactionServiceGrpc.getDescribeTransactionMethod) == null) {
      synchronized (TransactionServiceGrpc.class) {
        if ((getDescribeTransactionMethod = TransactionServiceGrpc.getDescribeTransactionMethod) == null) {
          TransactionServiceGrpc.getDescribeTransactionMethod = getDescribeTransactionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeTransactionRequest, io.github.oncelog.client.proto.DescribeTransactionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeTransaction"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeTransactionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeTransactionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeTransactionMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static TransactionServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TransactionServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TransactionServiceStub>() {
        @java.lang.Override
        public TransactionServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TransactionServiceStub(channel, callOptions);
        }
      };
    return TransactionServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static TransactionServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TransactionServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TransactionServiceBlockingV2Stub>() {
        @java.lang.Override
        public TransactionServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TransactionServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return TransactionServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static TransactionServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TransactionServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TransactionServiceBlockingStub>() {
        @java.lang.Override
        public TransactionServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TransactionServiceBlockingStub(channel, callOptions);
        }
      };
    return TransactionServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static TransactionServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TransactionServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TransactionServiceFutureStub>() {
        @java.lang.Override
        public TransactionServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TransactionServiceFutureStub(channel, callOptions);
        }
      };
    return TransactionServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * Begins a transaction of a producer's name. One is open at a time.
     * </pre>
     */
    default void beginTransaction(io.github.oncelog.client.proto.BeginTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginTransactionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getBeginTransactionMethod(), responseObserver);
    }

    /**
     * <pre>
     * Keeps open transactions from being aborted for idleness.
     * </pre>
     */
    default void keepTransactionsAlive(io.github.oncelog.client.proto.KeepTransactionsAliveRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.KeepTransactionsAliveResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getKeepTransactionsAliveMethod(), responseObserver);
    }

    /**
     * <pre>
     * Makes everything readable that was staged. To be repeated until it is answered.
     * </pre>
     */
    default void commitTransaction(io.github.oncelog.client.proto.CommitTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitTransactionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCommitTransactionMethod(), responseObserver);
    }

    /**
     * <pre>
     * Drops everything that was staged.
     * </pre>
     */
    default void abortTransaction(io.github.oncelog.client.proto.AbortTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortTransactionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAbortTransactionMethod(), responseObserver);
    }

    /**
     * <pre>
     * Transactions that have not ended in all partitions, the oldest first.
     * </pre>
     */
    default void listTransactions(io.github.oncelog.client.proto.ListTransactionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListTransactionsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListTransactionsMethod(), responseObserver);
    }

    /**
     * <pre>
     * One of them, or one that has ended and whose owner has begun no other since.
     * </pre>
     */
    default void describeTransaction(io.github.oncelog.client.proto.DescribeTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTransactionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeTransactionMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service TransactionService.
   */
  public static abstract class TransactionServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return TransactionServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service TransactionService.
   */
  public static final class TransactionServiceStub
      extends io.grpc.stub.AbstractAsyncStub<TransactionServiceStub> {
    private TransactionServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TransactionServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TransactionServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Begins a transaction of a producer's name. One is open at a time.
     * </pre>
     */
    public void beginTransaction(io.github.oncelog.client.proto.BeginTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginTransactionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getBeginTransactionMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Keeps open transactions from being aborted for idleness.
     * </pre>
     */
    public void keepTransactionsAlive(io.github.oncelog.client.proto.KeepTransactionsAliveRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.KeepTransactionsAliveResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getKeepTransactionsAliveMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Makes everything readable that was staged. To be repeated until it is answered.
     * </pre>
     */
    public void commitTransaction(io.github.oncelog.client.proto.CommitTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitTransactionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCommitTransactionMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Drops everything that was staged.
     * </pre>
     */
    public void abortTransaction(io.github.oncelog.client.proto.AbortTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortTransactionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAbortTransactionMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Transactions that have not ended in all partitions, the oldest first.
     * </pre>
     */
    public void listTransactions(io.github.oncelog.client.proto.ListTransactionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListTransactionsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListTransactionsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * One of them, or one that has ended and whose owner has begun no other since.
     * </pre>
     */
    public void describeTransaction(io.github.oncelog.client.proto.DescribeTransactionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTransactionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeTransactionMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service TransactionService.
   */
  public static final class TransactionServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<TransactionServiceBlockingV2Stub> {
    private TransactionServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TransactionServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TransactionServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Begins a transaction of a producer's name. One is open at a time.
     * </pre>
     */
    public io.github.oncelog.client.proto.BeginTransactionResponse beginTransaction(io.github.oncelog.client.proto.BeginTransactionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getBeginTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Keeps open transactions from being aborted for idleness.
     * </pre>
     */
    public io.github.oncelog.client.proto.KeepTransactionsAliveResponse keepTransactionsAlive(io.github.oncelog.client.proto.KeepTransactionsAliveRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getKeepTransactionsAliveMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Makes everything readable that was staged. To be repeated until it is answered.
     * </pre>
     */
    public io.github.oncelog.client.proto.CommitTransactionResponse commitTransaction(io.github.oncelog.client.proto.CommitTransactionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCommitTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops everything that was staged.
     * </pre>
     */
    public io.github.oncelog.client.proto.AbortTransactionResponse abortTransaction(io.github.oncelog.client.proto.AbortTransactionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAbortTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Transactions that have not ended in all partitions, the oldest first.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListTransactionsResponse listTransactions(io.github.oncelog.client.proto.ListTransactionsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListTransactionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One of them, or one that has ended and whose owner has begun no other since.
     * </pre>
     */
    public io.github.oncelog.client.proto.DescribeTransactionResponse describeTransaction(io.github.oncelog.client.proto.DescribeTransactionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeTransactionMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service TransactionService.
   */
  public static final class TransactionServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<TransactionServiceBlockingStub> {
    private TransactionServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TransactionServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TransactionServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Begins a transaction of a producer's name. One is open at a time.
     * </pre>
     */
    public io.github.oncelog.client.proto.BeginTransactionResponse beginTransaction(io.github.oncelog.client.proto.BeginTransactionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getBeginTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Keeps open transactions from being aborted for idleness.
     * </pre>
     */
    public io.github.oncelog.client.proto.KeepTransactionsAliveResponse keepTransactionsAlive(io.github.oncelog.client.proto.KeepTransactionsAliveRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getKeepTransactionsAliveMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Makes everything readable that was staged. To be repeated until it is answered.
     * </pre>
     */
    public io.github.oncelog.client.proto.CommitTransactionResponse commitTransaction(io.github.oncelog.client.proto.CommitTransactionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCommitTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops everything that was staged.
     * </pre>
     */
    public io.github.oncelog.client.proto.AbortTransactionResponse abortTransaction(io.github.oncelog.client.proto.AbortTransactionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAbortTransactionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Transactions that have not ended in all partitions, the oldest first.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListTransactionsResponse listTransactions(io.github.oncelog.client.proto.ListTransactionsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListTransactionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One of them, or one that has ended and whose owner has begun no other since.
     * </pre>
     */
    public io.github.oncelog.client.proto.DescribeTransactionResponse describeTransaction(io.github.oncelog.client.proto.DescribeTransactionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeTransactionMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service TransactionService.
   */
  public static final class TransactionServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<TransactionServiceFutureStub> {
    private TransactionServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TransactionServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TransactionServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Begins a transaction of a producer's name. One is open at a time.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.BeginTransactionResponse> beginTransaction(
        io.github.oncelog.client.proto.BeginTransactionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getBeginTransactionMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Keeps open transactions from being aborted for idleness.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.KeepTransactionsAliveResponse> keepTransactionsAlive(
        io.github.oncelog.client.proto.KeepTransactionsAliveRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getKeepTransactionsAliveMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Makes everything readable that was staged. To be repeated until it is answered.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.CommitTransactionResponse> commitTransaction(
        io.github.oncelog.client.proto.CommitTransactionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCommitTransactionMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Drops everything that was staged.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.AbortTransactionResponse> abortTransaction(
        io.github.oncelog.client.proto.AbortTransactionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAbortTransactionMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Transactions that have not ended in all partitions, the oldest first.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListTransactionsResponse> listTransactions(
        io.github.oncelog.client.proto.ListTransactionsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListTransactionsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * One of them, or one that has ended and whose owner has begun no other since.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeTransactionResponse> describeTransaction(
        io.github.oncelog.client.proto.DescribeTransactionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeTransactionMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_BEGIN_TRANSACTION = 0;
  private static final int METHODID_KEEP_TRANSACTIONS_ALIVE = 1;
  private static final int METHODID_COMMIT_TRANSACTION = 2;
  private static final int METHODID_ABORT_TRANSACTION = 3;
  private static final int METHODID_LIST_TRANSACTIONS = 4;
  private static final int METHODID_DESCRIBE_TRANSACTION = 5;

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
        case METHODID_BEGIN_TRANSACTION:
          serviceImpl.beginTransaction((io.github.oncelog.client.proto.BeginTransactionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BeginTransactionResponse>) responseObserver);
          break;
        case METHODID_KEEP_TRANSACTIONS_ALIVE:
          serviceImpl.keepTransactionsAlive((io.github.oncelog.client.proto.KeepTransactionsAliveRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.KeepTransactionsAliveResponse>) responseObserver);
          break;
        case METHODID_COMMIT_TRANSACTION:
          serviceImpl.commitTransaction((io.github.oncelog.client.proto.CommitTransactionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitTransactionResponse>) responseObserver);
          break;
        case METHODID_ABORT_TRANSACTION:
          serviceImpl.abortTransaction((io.github.oncelog.client.proto.AbortTransactionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AbortTransactionResponse>) responseObserver);
          break;
        case METHODID_LIST_TRANSACTIONS:
          serviceImpl.listTransactions((io.github.oncelog.client.proto.ListTransactionsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListTransactionsResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_TRANSACTION:
          serviceImpl.describeTransaction((io.github.oncelog.client.proto.DescribeTransactionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTransactionResponse>) responseObserver);
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
          getBeginTransactionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.BeginTransactionRequest,
              io.github.oncelog.client.proto.BeginTransactionResponse>(
                service, METHODID_BEGIN_TRANSACTION)))
        .addMethod(
          getKeepTransactionsAliveMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.KeepTransactionsAliveRequest,
              io.github.oncelog.client.proto.KeepTransactionsAliveResponse>(
                service, METHODID_KEEP_TRANSACTIONS_ALIVE)))
        .addMethod(
          getCommitTransactionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.CommitTransactionRequest,
              io.github.oncelog.client.proto.CommitTransactionResponse>(
                service, METHODID_COMMIT_TRANSACTION)))
        .addMethod(
          getAbortTransactionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.AbortTransactionRequest,
              io.github.oncelog.client.proto.AbortTransactionResponse>(
                service, METHODID_ABORT_TRANSACTION)))
        .addMethod(
          getListTransactionsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListTransactionsRequest,
              io.github.oncelog.client.proto.ListTransactionsResponse>(
                service, METHODID_LIST_TRANSACTIONS)))
        .addMethod(
          getDescribeTransactionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeTransactionRequest,
              io.github.oncelog.client.proto.DescribeTransactionResponse>(
                service, METHODID_DESCRIBE_TRANSACTION)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (TransactionServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getBeginTransactionMethod())
              .addMethod(getKeepTransactionsAliveMethod())
              .addMethod(getCommitTransactionMethod())
              .addMethod(getAbortTransactionMethod())
              .addMethod(getListTransactionsMethod())
              .addMethod(getDescribeTransactionMethod())
              .build();
        }
      }
    }
    return result;
  }
}
