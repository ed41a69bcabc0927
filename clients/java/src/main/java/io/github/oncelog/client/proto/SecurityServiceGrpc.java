package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class SecurityServiceGrpc {

  private SecurityServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.SecurityService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterPermissionsRequest,
      io.github.oncelog.client.proto.AlterPermissionsResponse> getAlterPermissionsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterPermissions",
      requestType = io.github.oncelog.client.proto.AlterPermissionsRequest.class,
      responseType = io.github.oncelog.client.proto.AlterPermissionsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterPermissionsRequest,
      io.github.oncelog.client.proto.AlterPermissionsResponse> getAlterPermissionsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterPermissionsRequest, io.github.oncelog.client.proto.AlterPermissionsResponse> getAlterPermissionsMethod;
    if ((getAlterPermissionsMethod = SecurityServiceGrpc.getAlterPermissionsMethod) == null) {
      synchronized (SecurityServiceGrpc.class) {
        if ((getAlterPermissionsMethod = SecurityServiceGrpc.getAlterPermissionsMethod) == null) {
          SecurityServiceGrpc.getAlterPermissionsMethod = getAlterPermissionsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.AlterPermissionsRequest, io.github.oncelog.client.proto.AlterPermissionsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterPermissions"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterPermissionsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterPermissionsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getAlterPermissionsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListPermissionsRequest,
      io.github.oncelog.client.proto.ListPermissionsResponse> getListPermissionsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListPermissions",
      requestType = io.github.oncelog.client.proto.ListPermissionsRequest.class,
      responseType = io.github.oncelog.client.proto.ListPermissionsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListPermissionsRequest,
      io.github.oncelog.client.proto.ListPermissionsResponse> getListPermissionsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListPermissionsRequest, io.github.oncelog.client.proto.ListPermissionsResponse> getListPermissionsMethod;
    if ((getListPermissionsMethod = SecurityServiceGrpc.getListPermissionsMethod) == null) {
      synchronized (SecurityServiceGrpc.class) {
        if ((getListPermissionsMethod = SecurityServiceGrpc.getListPermissionsMethod) == null) {
          SecurityServiceGrpc.getListPermissionsMethod = getListPermissionsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListPermissionsRequest, io.github.oncelog.client.proto.ListPermissionsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListPermissions"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListPermissionsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListPermissionsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListPermissionsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CheckPermissionRequest,
      io.github.oncelog.client.proto.CheckPermissionResponse> getCheckPermissionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CheckPermission",
      requestType = io.github.oncelog.client.proto.CheckPermissionRequest.class,
      responseType = io.github.oncelog.client.proto.CheckPermissionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CheckPermissionRequest,
      io.github.oncelog.client.proto.CheckPermissionResponse> getCheckPermissionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CheckPermissionRequest, io.github.oncelog.client.proto.CheckPermissionResponse> getCheckPermissionMethod;
    if ((getCheckPermissionMethod = SecurityServiceGrpc.getCheckPermissionMethod) == null) {
      synchronized (SecurityServiceGrpc.class) {
        if ((getCheckPermissionMethod = SecurityServiceGrpc.getCheckPermissionMethod) == null) {
          SecurityServiceGrpc.getCheckPermissionMethod = getCheckPermissionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.CheckPermissionRequest, io.github.oncelog.client.proto.CheckPermissionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CheckPermission"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CheckPermissionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CheckPermissionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getCheckPermissionMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterQuotasRequest,
      io.github.oncelog.client.proto.AlterQuotasResponse> getAlterQuotasMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterQuotas",
      requestType = io.github.oncelog.client.proto.AlterQuotasRequest.class,
      responseType = io.github.oncelog.client.proto.AlterQuotasResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterQuotasRequest,
      io.github.oncelog.client.proto.AlterQuotasResponse> getAlterQuotasMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterQuotasRequest, io.github.oncelog.client.proto.AlterQuotasResponse> getAlterQuotasMethod;
    if ((getAlterQuotasMethod = SecurityServiceGrpc.getAlterQuotasMethod) == null) {
      synchronized (SecurityServiceGrpc.class) {
        if ((getAlterQuotasMethod = SecurityServiceGrpc.getAlterQuotasMethod) == null) {
          SecurityServiceGrpc.getAlterQuotasMethod = getAlterQuotasMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.AlterQuotasRequest, io.github.oncelog.client.proto.AlterQuotasResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterQuotas"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterQuotasRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterQuotasResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getAlterQuotasMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListQuotasRequest,
      io.github.oncelog.client.proto.ListQuotasResponse> getListQuotasMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListQuotas",
      requestType = io.github.oncelog.client.proto.ListQuotasRequest.class,
      responseType = io.github.oncelog.client.proto.ListQuotasResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListQuotasRequest,
      io.github.oncelog.client.proto.ListQuotasResponse> getListQuotasMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListQuotasRequest, io.github.oncelog.client.proto.ListQuotasResponse> getListQuotasMethod;
    if ((getListQuotasMethod = SecurityServiceGrpc.getListQuotasMethod) == null) {
      synchronized (SecurityServiceGrpc.class) {
        if ((getListQuotasMethod = SecurityServiceGrpc.getListQuotasMethod) == null) {
          SecurityServiceGrpc.getListQuotasMethod = getListQuotasMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListQuotasRequest, io.github.oncelog.client.proto.ListQuotasResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListQuotas"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListQuotasRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListQuotasResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListQuotasMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static SecurityServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SecurityServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SecurityServiceStub>() {
        @java.lang.Override
        public SecurityServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SecurityServiceStub(channel, callOptions);
        }
      };
    return SecurityServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static SecurityServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SecurityServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SecurityServiceBlockingV2Stub>() {
        @java.lang.Override
        public SecurityServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SecurityServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return SecurityServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static SecurityServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SecurityServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SecurityServiceBlockingStub>() {
        @java.lang.Override
        public SecurityServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SecurityServiceBlockingStub(channel, callOptions);
        }
      };
    return SecurityServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static SecurityServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<SecurityServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<SecurityServiceFutureStub>() {
        @java.lang.Override
        public SecurityServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new SecurityServiceFutureStub(channel, callOptions);
        }
      };
    return SecurityServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * Adds and removes rules, all or none. Needs alter on the cluster.
     * </pre>
     */
    default void alterPermissions(io.github.oncelog.client.proto.AlterPermissionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterPermissionsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterPermissionsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Needs describe on the cluster; of the caller's own principal, nothing.
     * </pre>
     */
    default void listPermissions(io.github.oncelog.client.proto.ListPermissionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListPermissionsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListPermissionsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Whether something would be allowed. Needs the same as ListPermissions.
     * </pre>
     */
    default void checkPermission(io.github.oncelog.client.proto.CheckPermissionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CheckPermissionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCheckPermissionMethod(), responseObserver);
    }

    /**
     * <pre>
     * Sets and removes quotas, all or none. Needs alter on the cluster.
     * </pre>
     */
    default void alterQuotas(io.github.oncelog.client.proto.AlterQuotasRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterQuotasResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterQuotasMethod(), responseObserver);
    }

    /**
     * <pre>
     * Needs describe on the cluster.
     * </pre>
     */
    default void listQuotas(io.github.oncelog.client.proto.ListQuotasRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListQuotasResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListQuotasMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service SecurityService.
   */
  public static abstract class SecurityServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return SecurityServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service SecurityService.
   */
  public static final class SecurityServiceStub
      extends io.grpc.stub.AbstractAsyncStub<SecurityServiceStub> {
    private SecurityServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SecurityServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SecurityServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Adds and removes rules, all or none. Needs alter on the cluster.
     * </pre>
     */
    public void alterPermissions(io.github.oncelog.client.proto.AlterPermissionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterPermissionsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterPermissionsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Needs describe on the cluster; of the caller's own principal, nothing.
     * </pre>
     */
    public void listPermissions(io.github.oncelog.client.proto.ListPermissionsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListPermissionsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListPermissionsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Whether something would be allowed. Needs the same as ListPermissions.
     * </pre>
     */
    public void checkPermission(io.github.oncelog.client.proto.CheckPermissionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CheckPermissionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCheckPermissionMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Sets and removes quotas, all or none. Needs alter on the cluster.
     * </pre>
     */
    public void alterQuotas(io.github.oncelog.client.proto.AlterQuotasRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterQuotasResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterQuotasMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Needs describe on the cluster.
     * </pre>
     */
    public void listQuotas(io.github.oncelog.client.proto.ListQuotasRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListQuotasResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListQuotasMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service SecurityService.
   */
  public static final class SecurityServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<SecurityServiceBlockingV2Stub> {
    private SecurityServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SecurityServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SecurityServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Adds and removes rules, all or none. Needs alter on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.AlterPermissionsResponse alterPermissions(io.github.oncelog.client.proto.AlterPermissionsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterPermissionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster; of the caller's own principal, nothing.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListPermissionsResponse listPermissions(io.github.oncelog.client.proto.ListPermissionsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListPermissionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Whether something would be allowed. Needs the same as ListPermissions.
     * </pre>
     */
    public io.github.oncelog.client.proto.CheckPermissionResponse checkPermission(io.github.oncelog.client.proto.CheckPermissionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCheckPermissionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Sets and removes quotas, all or none. Needs alter on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.AlterQuotasResponse alterQuotas(io.github.oncelog.client.proto.AlterQuotasRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterQuotasMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListQuotasResponse listQuotas(io.github.oncelog.client.proto.ListQuotasRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListQuotasMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service SecurityService.
   */
  public static final class SecurityServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<SecurityServiceBlockingStub> {
    private SecurityServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SecurityServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SecurityServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Adds and removes rules, all or none. Needs alter on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.AlterPermissionsResponse alterPermissions(io.github.oncelog.client.proto.AlterPermissionsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterPermissionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster; of the caller's own principal, nothing.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListPermissionsResponse listPermissions(io.github.oncelog.client.proto.ListPermissionsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListPermissionsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Whether something would be allowed. Needs the same as ListPermissions.
     * </pre>
     */
    public io.github.oncelog.client.proto.CheckPermissionResponse checkPermission(io.github.oncelog.client.proto.CheckPermissionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCheckPermissionMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Sets and removes quotas, all or none. Needs alter on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.AlterQuotasResponse alterQuotas(io.github.oncelog.client.proto.AlterQuotasRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterQuotasMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListQuotasResponse listQuotas(io.github.oncelog.client.proto.ListQuotasRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListQuotasMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service SecurityService.
   */
  public static final class SecurityServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<SecurityServiceFutureStub> {
    private SecurityServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected SecurityServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new SecurityServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Adds and removes rules, all or none. Needs alter on the cluster.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.AlterPermissionsResponse> alterPermissions(
        io.github.oncelog.client.proto.AlterPermissionsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterPermissionsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster; of the caller's own principal, nothing.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListPermissionsResponse> listPermissions(
        io.github.oncelog.client.proto.ListPermissionsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListPermissionsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Whether something would be allowed. Needs the same as ListPermissions.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.CheckPermissionResponse> checkPermission(
        io.github.oncelog.client.proto.CheckPermissionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCheckPermissionMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Sets and removes quotas, all or none. Needs alter on the cluster.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.AlterQuotasResponse> alterQuotas(
        io.github.oncelog.client.proto.AlterQuotasRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterQuotasMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Needs describe on the cluster.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListQuotasResponse> listQuotas(
        io.github.oncelog.client.proto.ListQuotasRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListQuotasMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_ALTER_PERMISSIONS = 0;
  private static final int METHODID_LIST_PERMISSIONS = 1;
  private static final int METHODID_CHECK_PERMISSION = 2;
  private static final int METHODID_ALTER_QUOTAS = 3;
  private static final int METHODID_LIST_QUOTAS = 4;

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
        case METHODID_ALTER_PERMISSIONS:
          serviceImpl.alterPermissions((io.github.oncelog.client.proto.AlterPermissionsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterPermissionsResponse>) responseObserver);
          break;
        case METHODID_LIST_PERMISSIONS:
          serviceImpl.listPermissions((io.github.oncelog.client.proto.ListPermissionsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListPermissionsResponse>) responseObserver);
          break;
        case METHODID_CHECK_PERMISSION:
          serviceImpl.checkPermission((io.github.oncelog.client.proto.CheckPermissionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CheckPermissionResponse>) responseObserver);
          break;
        case METHODID_ALTER_QUOTAS:
          serviceImpl.alterQuotas((io.github.oncelog.client.proto.AlterQuotasRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterQuotasResponse>) responseObserver);
          break;
        case METHODID_LIST_QUOTAS:
          serviceImpl.listQuotas((io.github.oncelog.client.proto.ListQuotasRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListQuotasResponse>) responseObserver);
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
          getAlterPermissionsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.AlterPermissionsRequest,
              io.github.oncelog.client.proto.AlterPermissionsResponse>(
                service, METHODID_ALTER_PERMISSIONS)))
        .addMethod(
          getListPermissionsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListPermissionsRequest,
              io.github.oncelog.client.proto.ListPermissionsResponse>(
                service, METHODID_LIST_PERMISSIONS)))
        .addMethod(
          getCheckPermissionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.CheckPermissionRequest,
              io.github.oncelog.client.proto.CheckPermissionResponse>(
                service, METHODID_CHECK_PERMISSION)))
        .addMethod(
          getAlterQuotasMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.AlterQuotasRequest,
              io.github.oncelog.client.proto.AlterQuotasResponse>(
                service, METHODID_ALTER_QUOTAS)))
        .addMethod(
          getListQuotasMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListQuotasRequest,
              io.github.oncelog.client.proto.ListQuotasResponse>(
                service, METHODID_LIST_QUOTAS)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (SecurityServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getAlterPermissionsMethod())
              .addMethod(getListPermissionsMethod())
              .addMethod(getCheckPermissionMethod())
              .addMethod(getAlterQuotasMethod())
              .addMethod(getListQuotasMethod())
              .build();
        }
      }
    }
    return result;
  }
}
