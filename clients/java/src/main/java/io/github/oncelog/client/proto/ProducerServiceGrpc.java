package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class ProducerServiceGrpc {

  private ProducerServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.ProducerService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.LeaseProducerRequest,
      io.github.oncelog.client.proto.LeaseProducerResponse> getLeaseProducerMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "LeaseProducer",
      requestType = io.github.oncelog.client.proto.LeaseProducerRequest.class,
      responseType = io.github.oncelog.client.proto.LeaseProducerResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.LeaseProducerRequest,
      io.github.oncelog.client.proto.LeaseProducerResponse> getLeaseProducerMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.LeaseProducerRequest, io.github.oncelog.client.proto.LeaseProducerResponse> getLeaseProducerMethod;
    if ((getLeaseProducerMethod = ProducerServiceGrpc.getLeaseProducerMethod) == null) {
      synchronized (ProducerServiceGrpc.class) {
        if ((getLeaseProducerMethod = ProducerServiceGrpc.getLeaseProducerMethod) == null) {
          ProducerServiceGrpc.getLeaseProducerMethod = getLeaseProducerMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.LeaseProducerRequest, io.github.oncelog.client.proto.LeaseProducerResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "LeaseProducer"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.LeaseProducerRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.LeaseProducerResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getLeaseProducerMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.OpenProducerRequest,
      io.github.oncelog.client.proto.OpenProducerResponse> getOpenProducerMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "OpenProducer",
      requestType = io.github.oncelog.client.proto.OpenProducerRequest.class,
      responseType = io.github.oncelog.client.proto.OpenProducerResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.OpenProducerRequest,
      io.github.oncelog.client.proto.OpenProducerResponse> getOpenProducerMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.OpenProducerRequest, io.github.oncelog.client.proto.OpenProducerResponse> getOpenProducerMethod;
    if ((getOpenProducerMethod = ProducerServiceGrpc.getOpenProducerMethod) == null) {
      synchronized (ProducerServiceGrpc.class) {
        if ((getOpenProducerMethod = ProducerServiceGrpc.getOpenProducerMethod) == null) {
          ProducerServiceGrpc.getOpenProducerMethod = getOpenProducerMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.OpenProducerRequest, io.github.oncelog.client.proto.OpenProducerResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "OpenProducer"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.OpenProducerRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.OpenProducerResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getOpenProducerMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeProducersRequest,
      io.github.oncelog.client.proto.DescribeProducersResponse> getDescribeProducersMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeProducers",
      requestType = io.github.oncelog.client.proto.DescribeProducersRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeProducersResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeProducersRequest,
      io.github.oncelog.client.proto.DescribeProducersResponse> getDescribeProducersMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeProducersRequest, io.github.oncelog.client.proto.DescribeProducersResponse> getDescribeProducersMethod;
    if ((getDescribeProducersMethod = ProducerServiceGrpc.getDescribeProducersMethod) == null) {
      synchronized (ProducerServiceGrpc.class) {
        if ((getDescribeProducersMethod = ProducerServiceGrpc.getDescribeProducersMethod) == null) {
          ProducerServiceGrpc.getDescribeProducersMethod = getDescribeProducersMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeProducersRequest, io.github.oncelog.client.proto.DescribeProducersResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeProducers"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeProducersRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeProducersResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeProducersMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FenceProducerRequest,
      io.github.oncelog.client.proto.FenceProducerResponse> getFenceProducerMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "FenceProducer",
      requestType = io.github.oncelog.client.proto.FenceProducerRequest.class,
      responseType = io.github.oncelog.client.proto.FenceProducerResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FenceProducerRequest,
      io.github.oncelog.client.proto.FenceProducerResponse> getFenceProducerMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FenceProducerRequest, io.github.oncelog.client.proto.FenceProducerResponse> getFenceProducerMethod;
    if ((getFenceProducerMethod = ProducerServiceGrpc.getFenceProducerMethod) == null) {
      synchronized (ProducerServiceGrpc.class) {
        if ((getFenceProducerMethod = ProducerServiceGrpc.getFenceProducerMethod) == null) {
          ProducerServiceGrpc.getFenceProducerMethod = getFenceProducerMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.FenceProducerRequest, io.github.oncelog.client.proto.FenceProducerResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "FenceProducer"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FenceProducerRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FenceProducerResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getFenceProducerMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListProducerNamesRequest,
      io.github.oncelog.client.proto.ListProducerNamesResponse> getListProducerNamesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListProducerNames",
      requestType = io.github.oncelog.client.proto.ListProducerNamesRequest.class,
      responseType = io.github.oncelog.client.proto.ListProducerNamesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListProducerNamesRequest,
      io.github.oncelog.client.proto.ListProducerNamesResponse> getListProducerNamesMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListProducerNamesRequest, io.github.oncelog.client.proto.ListProducerNamesResponse> getListProducerNamesMethod;
    if ((getListProducerNamesMethod = ProducerServiceGrpc.getListProducerNamesMethod) == null) {
      synchronized (ProducerServiceGrpc.class) {
        if ((getListProducerNamesMethod = ProducerServiceGrpc.getListProducerNamesMethod) == null) {
          ProducerServiceGrpc.getListProducerNamesMethod = getListProducerNamesMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListProducerNamesRequest, io.github.oncelog.client.proto.ListProducerNamesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListProducerNames"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListProducerNamesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListProducerNamesResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListProducerNamesMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static ProducerServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ProducerServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ProducerServiceStub>() {
        @java.lang.Override
        public ProducerServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ProducerServiceStub(channel, callOptions);
        }
      };
    return ProducerServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static ProducerServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ProducerServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ProducerServiceBlockingV2Stub>() {
        @java.lang.Override
        public ProducerServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ProducerServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return ProducerServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static ProducerServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ProducerServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ProducerServiceBlockingStub>() {
        @java.lang.Override
        public ProducerServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ProducerServiceBlockingStub(channel, callOptions);
        }
      };
    return ProducerServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static ProducerServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ProducerServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ProducerServiceFutureStub>() {
        @java.lang.Override
        public ProducerServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ProducerServiceFutureStub(channel, callOptions);
        }
      };
    return ProducerServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * Issues a producer id, valid until expire_ms; with a name, the name's
     * (producer_id, epoch) with the epoch raised by one.
     * </pre>
     */
    default void leaseProducer(io.github.oncelog.client.proto.LeaseProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.LeaseProducerResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getLeaseProducerMethod(), responseObserver);
    }

    /**
     * <pre>
     * Fences the predecessor in each partition at once and tells where to go on.
     * </pre>
     */
    default void openProducer(io.github.oncelog.client.proto.OpenProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.OpenProducerResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getOpenProducerMethod(), responseObserver);
    }

    /**
     * <pre>
     * The last-seen state of producers in a partition.
     * </pre>
     */
    default void describeProducers(io.github.oncelog.client.proto.DescribeProducersRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeProducersResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeProducersMethod(), responseObserver);
    }

    /**
     * <pre>
     * Raises a named producer's epoch without taking it over. Lower epochs are
     * FENCED in every partition as soon as its leader has heard of it.
     * </pre>
     */
    default void fenceProducer(io.github.oncelog.client.proto.FenceProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FenceProducerResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getFenceProducerMethod(), responseObserver);
    }

    /**
     */
    default void listProducerNames(io.github.oncelog.client.proto.ListProducerNamesRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListProducerNamesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListProducerNamesMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service ProducerService.
   */
  public static abstract class ProducerServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return ProducerServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service ProducerService.
   */
  public static final class ProducerServiceStub
      extends io.grpc.stub.AbstractAsyncStub<ProducerServiceStub> {
    private ProducerServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ProducerServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ProducerServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Issues a producer id, valid until expire_ms; with a name, the name's
     * (producer_id, epoch) with the epoch raised by one.
     * </pre>
     */
    public void leaseProducer(io.github.oncelog.client.proto.LeaseProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.LeaseProducerResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getLeaseProducerMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Fences the predecessor in each partition at once and tells where to go on.
     * </pre>
     */
    public void openProducer(io.github.oncelog.client.proto.OpenProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.OpenProducerResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getOpenProducerMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The last-seen state of producers in a partition.
     * </pre>
     */
    public void describeProducers(io.github.oncelog.client.proto.DescribeProducersRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeProducersResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeProducersMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Raises a named producer's epoch without taking it over. Lower epochs are
     * FENCED in every partition as soon as its leader has heard of it.
     * </pre>
     */
    public void fenceProducer(io.github.oncelog.client.proto.FenceProducerRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FenceProducerResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getFenceProducerMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void listProducerNames(io.github.oncelog.client.proto.ListProducerNamesRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListProducerNamesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListProducerNamesMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service ProducerService.
   */
  public static final class ProducerServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<ProducerServiceBlockingV2Stub> {
    private ProducerServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ProducerServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ProducerServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Issues a producer id, valid until expire_ms; with a name, the name's
     * (producer_id, epoch) with the epoch raised by one.
     * </pre>
     */
    public io.github.oncelog.client.proto.LeaseProducerResponse leaseProducer(io.github.oncelog.client.proto.LeaseProducerRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getLeaseProducerMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Fences the predecessor in each partition at once and tells where to go on.
     * </pre>
     */
    public io.github.oncelog.client.proto.OpenProducerResponse openProducer(io.github.oncelog.client.proto.OpenProducerRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getOpenProducerMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The last-seen state of producers in a partition.
     * </pre>
     */
    public io.github.oncelog.client.proto.DescribeProducersResponse describeProducers(io.github.oncelog.client.proto.DescribeProducersRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeProducersMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Raises a named producer's epoch without taking it over. Lower epochs are
     * FENCED in every partition as soon as its leader has heard of it.
     * </pre>
     */
    public io.github.oncelog.client.proto.FenceProducerResponse fenceProducer(io.github.oncelog.client.proto.FenceProducerRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getFenceProducerMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListProducerNamesResponse listProducerNames(io.github.oncelog.client.proto.ListProducerNamesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListProducerNamesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service ProducerService.
   */
  public static final class ProducerServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<ProducerServiceBlockingStub> {
    private ProducerServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ProducerServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ProducerServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Issues a producer id, valid until expire_ms; with a name, the name's
     * (producer_id, epoch) with the epoch raised by one.
     * </pre>
     */
    public io.github.oncelog.client.proto.LeaseProducerResponse leaseProducer(io.github.oncelog.client.proto.LeaseProducerRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getLeaseProducerMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Fences the predecessor in each partition at once and tells where to go on.
     * </pre>
     */
    public io.github.oncelog.client.proto.OpenProducerResponse openProducer(io.github.oncelog.client.proto.OpenProducerRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getOpenProducerMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The last-seen state of producers in a partition.
     * </pre>
     */
    public io.github.oncelog.client.proto.DescribeProducersResponse describeProducers(io.github.oncelog.client.proto.DescribeProducersRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeProducersMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Raises a named producer's epoch without taking it over. Lower epochs are
     * FENCED in every partition as soon as its leader has heard of it.
     * </pre>
     */
    public io.github.oncelog.client.proto.FenceProducerResponse fenceProducer(io.github.oncelog.client.proto.FenceProducerRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getFenceProducerMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListProducerNamesResponse listProducerNames(io.github.oncelog.client.proto.ListProducerNamesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListProducerNamesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service ProducerService.
   */
  public static final class ProducerServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<ProducerServiceFutureStub> {
    private ProducerServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ProducerServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ProducerServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Issues a producer id, valid until expire_ms; with a name, the name's
     * (producer_id, epoch) with the epoch raised by one.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.LeaseProducerResponse> leaseProducer(
        io.github.oncelog.client.proto.LeaseProducerRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getLeaseProducerMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Fences the predecessor in each partition at once and tells where to go on.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.OpenProducerResponse> openProducer(
        io.github.oncelog.client.proto.OpenProducerRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getOpenProducerMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The last-seen state of producers in a partition.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeProducersResponse> describeProducers(
        io.github.oncelog.client.proto.DescribeProducersRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeProducersMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Raises a named producer's epoch without taking it over. Lower epochs are
     * FENCED in every partition as soon as its leader has heard of it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.FenceProducerResponse> fenceProducer(
        io.github.oncelog.client.proto.FenceProducerRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getFenceProducerMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListProducerNamesResponse> listProducerNames(
        io.github.oncelog.client.proto.ListProducerNamesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListProducerNamesMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_LEASE_PRODUCER = 0;
  private static final int METHODID_OPEN_PRODUCER = 1;
  private static final int METHODID_DESCRIBE_PRODUCERS = 2;
  private static final int METHODID_FENCE_PRODUCER = 3;
  private static final int METHODID_LIST_PRODUCER_NAMES = 4;

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
        case METHODID_LEASE_PRODUCER:
          serviceImpl.leaseProducer((io.github.oncelog.client.proto.LeaseProducerRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.LeaseProducerResponse>) responseObserver);
          break;
        case METHODID_OPEN_PRODUCER:
          serviceImpl.openProducer((io.github.oncelog.client.proto.OpenProducerRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.OpenProducerResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_PRODUCERS:
          serviceImpl.describeProducers((io.github.oncelog.client.proto.DescribeProducersRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeProducersResponse>) responseObserver);
          break;
        case METHODID_FENCE_PRODUCER:
          serviceImpl.fenceProducer((io.github.oncelog.client.proto.FenceProducerRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FenceProducerResponse>) responseObserver);
          break;
        case METHODID_LIST_PRODUCER_NAMES:
          serviceImpl.listProducerNames((io.github.oncelog.client.proto.ListProducerNamesRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListProducerNamesResponse>) responseObserver);
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
          getLeaseProducerMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.LeaseProducerRequest,
              io.github.oncelog.client.proto.LeaseProducerResponse>(
                service, METHODID_LEASE_PRODUCER)))
        .addMethod(
          getOpenProducerMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.OpenProducerRequest,
              io.github.oncelog.client.proto.OpenProducerResponse>(
                service, METHODID_OPEN_PRODUCER)))
        .addMethod(
          getDescribeProducersMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeProducersRequest,
              io.github.oncelog.client.proto.DescribeProducersResponse>(
                service, METHODID_DESCRIBE_PRODUCERS)))
        .addMethod(
          getFenceProducerMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.FenceProducerRequest,
              io.github.oncelog.client.proto.FenceProducerResponse>(
                service, METHODID_FENCE_PRODUCER)))
        .addMethod(
          getListProducerNamesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListProducerNamesRequest,
              io.github.oncelog.client.proto.ListProducerNamesResponse>(
                service, METHODID_LIST_PRODUCER_NAMES)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (ProducerServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getLeaseProducerMethod())
              .addMethod(getOpenProducerMethod())
              .addMethod(getDescribeProducersMethod())
              .addMethod(getFenceProducerMethod())
              .addMethod(getListProducerNamesMethod())
              .build();
        }
      }
    }
    return result;
  }
}
