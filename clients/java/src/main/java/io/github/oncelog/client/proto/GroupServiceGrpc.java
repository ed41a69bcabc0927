package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class GroupServiceGrpc {

  private GroupServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.GroupService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitOffsetsRequest,
      io.github.oncelog.client.proto.CommitOffsetsResponse> getCommitOffsetsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CommitOffsets",
      requestType = io.github.oncelog.client.proto.CommitOffsetsRequest.class,
      responseType = io.github.oncelog.client.proto.CommitOffsetsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitOffsetsRequest,
      io.github.oncelog.client.proto.CommitOffsetsResponse> getCommitOffsetsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CommitOffsetsRequest, io.github.oncelog.client.proto.CommitOffsetsResponse> getCommitOffsetsMethod;
    if ((getCommitOffsetsMethod = GroupServiceGrpc.getCommitOffsetsMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getCommitOffsetsMethod = GroupServiceGrpc.getCommitOffsetsMethod) == null) {
          GroupServiceGrpc.getCommitOffsetsMethod = getCommitOffsetsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.CommitOffsetsRequest, io.github.oncelog.client.proto.CommitOffsetsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CommitOffsets"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CommitOffsetsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CommitOffsetsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getCommitOffsetsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.StageOffsetsRequest,
      io.github.oncelog.client.proto.StageOffsetsResponse> getStageOffsetsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "StageOffsets",
      requestType = io.github.oncelog.client.proto.StageOffsetsRequest.class,
      responseType = io.github.oncelog.client.proto.StageOffsetsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.StageOffsetsRequest,
      io.github.oncelog.client.proto.StageOffsetsResponse> getStageOffsetsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.StageOffsetsRequest, io.github.oncelog.client.proto.StageOffsetsResponse> getStageOffsetsMethod;
    if ((getStageOffsetsMethod = GroupServiceGrpc.getStageOffsetsMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getStageOffsetsMethod = GroupServiceGrpc.getStageOffsetsMethod) == null) {
          GroupServiceGrpc.getStageOffsetsMethod = getStageOffsetsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.StageOffsetsRequest, io.github.oncelog.client.proto.StageOffsetsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "StageOffsets"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.StageOffsetsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.StageOffsetsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getStageOffsetsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchOffsetsRequest,
      io.github.oncelog.client.proto.FetchOffsetsResponse> getFetchOffsetsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "FetchOffsets",
      requestType = io.github.oncelog.client.proto.FetchOffsetsRequest.class,
      responseType = io.github.oncelog.client.proto.FetchOffsetsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchOffsetsRequest,
      io.github.oncelog.client.proto.FetchOffsetsResponse> getFetchOffsetsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FetchOffsetsRequest, io.github.oncelog.client.proto.FetchOffsetsResponse> getFetchOffsetsMethod;
    if ((getFetchOffsetsMethod = GroupServiceGrpc.getFetchOffsetsMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getFetchOffsetsMethod = GroupServiceGrpc.getFetchOffsetsMethod) == null) {
          GroupServiceGrpc.getFetchOffsetsMethod = getFetchOffsetsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.FetchOffsetsRequest, io.github.oncelog.client.proto.FetchOffsetsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "FetchOffsets"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FetchOffsetsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FetchOffsetsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getFetchOffsetsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListGroupsRequest,
      io.github.oncelog.client.proto.ListGroupsResponse> getListGroupsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListGroups",
      requestType = io.github.oncelog.client.proto.ListGroupsRequest.class,
      responseType = io.github.oncelog.client.proto.ListGroupsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListGroupsRequest,
      io.github.oncelog.client.proto.ListGroupsResponse> getListGroupsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListGroupsRequest, io.github.oncelog.client.proto.ListGroupsResponse> getListGroupsMethod;
    if ((getListGroupsMethod = GroupServiceGrpc.getListGroupsMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getListGroupsMethod = GroupServiceGrpc.getListGroupsMethod) == null) {
          GroupServiceGrpc.getListGroupsMethod = getListGroupsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListGroupsRequest, io.github.oncelog.client.proto.ListGroupsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListGroups"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListGroupsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListGroupsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListGroupsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeGroupRequest,
      io.github.oncelog.client.proto.DescribeGroupResponse> getDescribeGroupMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeGroup",
      requestType = io.github.oncelog.client.proto.DescribeGroupRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeGroupResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeGroupRequest,
      io.github.oncelog.client.proto.DescribeGroupResponse> getDescribeGroupMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeGroupRequest, io.github.oncelog.client.proto.DescribeGroupResponse> getDescribeGroupMethod;
    if ((getDescribeGroupMethod = GroupServiceGrpc.getDescribeGroupMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getDescribeGroupMethod = GroupServiceGrpc.getDescribeGroupMethod) == null) {
          GroupServiceGrpc.getDescribeGroupMethod = getDescribeGroupMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeGroupRequest, io.github.oncelog.client.proto.DescribeGroupResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeGroup"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeGroupRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeGroupResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeGroupMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteGroupRequest,
      io.github.oncelog.client.proto.DeleteGroupResponse> getDeleteGroupMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DeleteGroup",
      requestType = io.github.oncelog.client.proto.DeleteGroupRequest.class,
      responseType = io.github.oncelog.client.proto.DeleteGroupResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteGroupRequest,
      io.github.oncelog.client.proto.DeleteGroupResponse> getDeleteGroupMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteGroupRequest, io.github.oncelog.client.proto.DeleteGroupResponse> getDeleteGroupMethod;
    if ((getDeleteGroupMethod = GroupServiceGrpc.getDeleteGroupMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getDeleteGroupMethod = GroupServiceGrpc.getDeleteGroupMethod) == null) {
          GroupServiceGrpc.getDeleteGroupMethod = getDeleteGroupMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DeleteGroupRequest, io.github.oncelog.client.proto.DeleteGroupResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DeleteGroup"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DeleteGroupRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DeleteGroupResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDeleteGroupMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.JoinGroupRequest,
      io.github.oncelog.client.proto.JoinGroupResponse> getJoinGroupMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "JoinGroup",
      requestType = io.github.oncelog.client.proto.JoinGroupRequest.class,
      responseType = io.github.oncelog.client.proto.JoinGroupResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.JoinGroupRequest,
      io.github.oncelog.client.proto.JoinGroupResponse> getJoinGroupMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.JoinGroupRequest, io.github.oncelog.client.proto.JoinGroupResponse> getJoinGroupMethod;
    if ((getJoinGroupMethod = GroupServiceGrpc.getJoinGroupMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getJoinGroupMethod = GroupServiceGrpc.getJoinGroupMethod) == null) {
          GroupServiceGrpc.getJoinGroupMethod = getJoinGroupMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.JoinGroupRequest, io.github.oncelog.client.proto.JoinGroupResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.BIDI_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "JoinGroup"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.JoinGroupRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.JoinGroupResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getJoinGroupMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.GroupHeartbeatRequest,
      io.github.oncelog.client.proto.JoinGroupResponse> getGroupHeartbeatMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GroupHeartbeat",
      requestType = io.github.oncelog.client.proto.GroupHeartbeatRequest.class,
      responseType = io.github.oncelog.client.proto.JoinGroupResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.GroupHeartbeatRequest,
      io.github.oncelog.client.proto.JoinGroupResponse> getGroupHeartbeatMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.GroupHeartbeatRequest, io.github.oncelog.client.proto.JoinGroupResponse> getGroupHeartbeatMethod;
    if ((getGroupHeartbeatMethod = GroupServiceGrpc.getGroupHeartbeatMethod) == null) {
      synchronized (GroupServiceGrpc.class) {
        if ((getGroupHeartbeatMethod = GroupServiceGrpc.getGroupHeartbeatMethod) == null) {
          GroupServiceGrpc.getGroupHeartbeatMethod = getGroupHeartbeatMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.GroupHeartbeatRequest, io.github.oncelog.client.proto.JoinGroupResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GroupHeartbeat"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.GroupHeartbeatRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.JoinGroupResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getGroupHeartbeatMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static GroupServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<GroupServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<GroupServiceStub>() {
        @java.lang.Override
        public GroupServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new GroupServiceStub(channel, callOptions);
        }
      };
    return GroupServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static GroupServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<GroupServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<GroupServiceBlockingV2Stub>() {
        @java.lang.Override
        public GroupServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new GroupServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return GroupServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static GroupServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<GroupServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<GroupServiceBlockingStub>() {
        @java.lang.Override
        public GroupServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new GroupServiceBlockingStub(channel, callOptions);
        }
      };
    return GroupServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static GroupServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<GroupServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<GroupServiceFutureStub>() {
        @java.lang.Override
        public GroupServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new GroupServiceFutureStub(channel, callOptions);
        }
      };
    return GroupServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     * <pre>
     * Stores offsets; also how a group seeks. Offsets of one call are applied
     * together, each with a result of its own.
     * </pre>
     */
    default void commitOffsets(io.github.oncelog.client.proto.CommitOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitOffsetsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCommitOffsetsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Stores offsets with a transaction: they count when it is committed, together with
     * its records, or never. All of a call or none. At the group's leader, as CommitOffsets.
     * </pre>
     */
    default void stageOffsets(io.github.oncelog.client.proto.StageOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.StageOffsetsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getStageOffsetsMethod(), responseObserver);
    }

    /**
     * <pre>
     * What a group has committed. Who asks is about to read on from there: a transaction
     * that has staged offsets of these partitions is aborted, or, if it was decided to
     * commit, waited for.
     * </pre>
     */
    default void fetchOffsets(io.github.oncelog.client.proto.FetchOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchOffsetsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getFetchOffsetsMethod(), responseObserver);
    }

    /**
     * <pre>
     * The groups in those partitions of __offsets that the answering node leads:
     * ask every node.
     * </pre>
     */
    default void listGroups(io.github.oncelog.client.proto.ListGroupsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListGroupsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListGroupsMethod(), responseObserver);
    }

    /**
     */
    default void describeGroup(io.github.oncelog.client.proto.DescribeGroupRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeGroupResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeGroupMethod(), responseObserver);
    }

    /**
     */
    default void deleteGroup(io.github.oncelog.client.proto.DeleteGroupRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteGroupResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDeleteGroupMethod(), responseObserver);
    }

    /**
     * <pre>
     * Membership: the brokers share a group's partitions out among its members. The
     * first request is a hello; the server answers each hello with the assignment,
     * and sends each later one by itself. A stream that breaks ends nothing: the
     * member goes on over another one within its session. At most one owner of a
     * partition can commit, whatever else goes wrong.
     * </pre>
     */
    default io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupRequest> joinGroup(
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getJoinGroupMethod(), responseObserver);
    }

    /**
     * <pre>
     * The same without a stream, for proxies: one request of JoinGroup (an empty one
     * is a ping), answered with the newest message for the member.
     * </pre>
     */
    default void groupHeartbeat(io.github.oncelog.client.proto.GroupHeartbeatRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGroupHeartbeatMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service GroupService.
   */
  public static abstract class GroupServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return GroupServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service GroupService.
   */
  public static final class GroupServiceStub
      extends io.grpc.stub.AbstractAsyncStub<GroupServiceStub> {
    private GroupServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected GroupServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new GroupServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores offsets; also how a group seeks. Offsets of one call are applied
     * together, each with a result of its own.
     * </pre>
     */
    public void commitOffsets(io.github.oncelog.client.proto.CommitOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitOffsetsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCommitOffsetsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Stores offsets with a transaction: they count when it is committed, together with
     * its records, or never. All of a call or none. At the group's leader, as CommitOffsets.
     * </pre>
     */
    public void stageOffsets(io.github.oncelog.client.proto.StageOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.StageOffsetsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getStageOffsetsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * What a group has committed. Who asks is about to read on from there: a transaction
     * that has staged offsets of these partitions is aborted, or, if it was decided to
     * commit, waited for.
     * </pre>
     */
    public void fetchOffsets(io.github.oncelog.client.proto.FetchOffsetsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchOffsetsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getFetchOffsetsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The groups in those partitions of __offsets that the answering node leads:
     * ask every node.
     * </pre>
     */
    public void listGroups(io.github.oncelog.client.proto.ListGroupsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListGroupsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListGroupsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void describeGroup(io.github.oncelog.client.proto.DescribeGroupRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeGroupResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeGroupMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void deleteGroup(io.github.oncelog.client.proto.DeleteGroupRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteGroupResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDeleteGroupMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Membership: the brokers share a group's partitions out among its members. The
     * first request is a hello; the server answers each hello with the assignment,
     * and sends each later one by itself. A stream that breaks ends nothing: the
     * member goes on over another one within its session. At most one owner of a
     * partition can commit, whatever else goes wrong.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupRequest> joinGroup(
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncBidiStreamingCall(
          getChannel().newCall(getJoinGroupMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * The same without a stream, for proxies: one request of JoinGroup (an empty one
     * is a ping), answered with the newest message for the member.
     * </pre>
     */
    public void groupHeartbeat(io.github.oncelog.client.proto.GroupHeartbeatRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGroupHeartbeatMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service GroupService.
   */
  public static final class GroupServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<GroupServiceBlockingV2Stub> {
    private GroupServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected GroupServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new GroupServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores offsets; also how a group seeks. Offsets of one call are applied
     * together, each with a result of its own.
     * </pre>
     */
    public io.github.oncelog.client.proto.CommitOffsetsResponse commitOffsets(io.github.oncelog.client.proto.CommitOffsetsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCommitOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Stores offsets with a transaction: they count when it is committed, together with
     * its records, or never. All of a call or none. At the group's leader, as CommitOffsets.
     * </pre>
     */
    public io.github.oncelog.client.proto.StageOffsetsResponse stageOffsets(io.github.oncelog.client.proto.StageOffsetsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getStageOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * What a group has committed. Who asks is about to read on from there: a transaction
     * that has staged offsets of these partitions is aborted, or, if it was decided to
     * commit, waited for.
     * </pre>
     */
    public io.github.oncelog.client.proto.FetchOffsetsResponse fetchOffsets(io.github.oncelog.client.proto.FetchOffsetsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getFetchOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The groups in those partitions of __offsets that the answering node leads:
     * ask every node.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListGroupsResponse listGroups(io.github.oncelog.client.proto.ListGroupsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListGroupsMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeGroupResponse describeGroup(io.github.oncelog.client.proto.DescribeGroupRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeGroupMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DeleteGroupResponse deleteGroup(io.github.oncelog.client.proto.DeleteGroupRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDeleteGroupMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Membership: the brokers share a group's partitions out among its members. The
     * first request is a hello; the server answers each hello with the assignment,
     * and sends each later one by itself. A stream that breaks ends nothing: the
     * member goes on over another one within its session. At most one owner of a
     * partition can commit, whatever else goes wrong.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<io.github.oncelog.client.proto.JoinGroupRequest, io.github.oncelog.client.proto.JoinGroupResponse>
        joinGroup() {
      return io.grpc.stub.ClientCalls.blockingBidiStreamingCall(
          getChannel(), getJoinGroupMethod(), getCallOptions());
    }

    /**
     * <pre>
     * The same without a stream, for proxies: one request of JoinGroup (an empty one
     * is a ping), answered with the newest message for the member.
     * </pre>
     */
    public io.github.oncelog.client.proto.JoinGroupResponse groupHeartbeat(io.github.oncelog.client.proto.GroupHeartbeatRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGroupHeartbeatMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service GroupService.
   */
  public static final class GroupServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<GroupServiceBlockingStub> {
    private GroupServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected GroupServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new GroupServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores offsets; also how a group seeks. Offsets of one call are applied
     * together, each with a result of its own.
     * </pre>
     */
    public io.github.oncelog.client.proto.CommitOffsetsResponse commitOffsets(io.github.oncelog.client.proto.CommitOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCommitOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Stores offsets with a transaction: they count when it is committed, together with
     * its records, or never. All of a call or none. At the group's leader, as CommitOffsets.
     * </pre>
     */
    public io.github.oncelog.client.proto.StageOffsetsResponse stageOffsets(io.github.oncelog.client.proto.StageOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getStageOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * What a group has committed. Who asks is about to read on from there: a transaction
     * that has staged offsets of these partitions is aborted, or, if it was decided to
     * commit, waited for.
     * </pre>
     */
    public io.github.oncelog.client.proto.FetchOffsetsResponse fetchOffsets(io.github.oncelog.client.proto.FetchOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getFetchOffsetsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The groups in those partitions of __offsets that the answering node leads:
     * ask every node.
     * </pre>
     */
    public io.github.oncelog.client.proto.ListGroupsResponse listGroups(io.github.oncelog.client.proto.ListGroupsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListGroupsMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeGroupResponse describeGroup(io.github.oncelog.client.proto.DescribeGroupRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeGroupMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DeleteGroupResponse deleteGroup(io.github.oncelog.client.proto.DeleteGroupRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDeleteGroupMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The same without a stream, for proxies: one request of JoinGroup (an empty one
     * is a ping), answered with the newest message for the member.
     * </pre>
     */
    public io.github.oncelog.client.proto.JoinGroupResponse groupHeartbeat(io.github.oncelog.client.proto.GroupHeartbeatRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGroupHeartbeatMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service GroupService.
   */
  public static final class GroupServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<GroupServiceFutureStub> {
    private GroupServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected GroupServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new GroupServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores offsets; also how a group seeks. Offsets of one call are applied
     * together, each with a result of its own.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.CommitOffsetsResponse> commitOffsets(
        io.github.oncelog.client.proto.CommitOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCommitOffsetsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Stores offsets with a transaction: they count when it is committed, together with
     * its records, or never. All of a call or none. At the group's leader, as CommitOffsets.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.StageOffsetsResponse> stageOffsets(
        io.github.oncelog.client.proto.StageOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getStageOffsetsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * What a group has committed. Who asks is about to read on from there: a transaction
     * that has staged offsets of these partitions is aborted, or, if it was decided to
     * commit, waited for.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.FetchOffsetsResponse> fetchOffsets(
        io.github.oncelog.client.proto.FetchOffsetsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getFetchOffsetsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The groups in those partitions of __offsets that the answering node leads:
     * ask every node.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListGroupsResponse> listGroups(
        io.github.oncelog.client.proto.ListGroupsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListGroupsMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeGroupResponse> describeGroup(
        io.github.oncelog.client.proto.DescribeGroupRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeGroupMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DeleteGroupResponse> deleteGroup(
        io.github.oncelog.client.proto.DeleteGroupRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDeleteGroupMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The same without a stream, for proxies: one request of JoinGroup (an empty one
     * is a ping), answered with the newest message for the member.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.JoinGroupResponse> groupHeartbeat(
        io.github.oncelog.client.proto.GroupHeartbeatRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGroupHeartbeatMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_COMMIT_OFFSETS = 0;
  private static final int METHODID_STAGE_OFFSETS = 1;
  private static final int METHODID_FETCH_OFFSETS = 2;
  private static final int METHODID_LIST_GROUPS = 3;
  private static final int METHODID_DESCRIBE_GROUP = 4;
  private static final int METHODID_DELETE_GROUP = 5;
  private static final int METHODID_GROUP_HEARTBEAT = 6;
  private static final int METHODID_JOIN_GROUP = 7;

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
        case METHODID_COMMIT_OFFSETS:
          serviceImpl.commitOffsets((io.github.oncelog.client.proto.CommitOffsetsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CommitOffsetsResponse>) responseObserver);
          break;
        case METHODID_STAGE_OFFSETS:
          serviceImpl.stageOffsets((io.github.oncelog.client.proto.StageOffsetsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.StageOffsetsResponse>) responseObserver);
          break;
        case METHODID_FETCH_OFFSETS:
          serviceImpl.fetchOffsets((io.github.oncelog.client.proto.FetchOffsetsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FetchOffsetsResponse>) responseObserver);
          break;
        case METHODID_LIST_GROUPS:
          serviceImpl.listGroups((io.github.oncelog.client.proto.ListGroupsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListGroupsResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_GROUP:
          serviceImpl.describeGroup((io.github.oncelog.client.proto.DescribeGroupRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeGroupResponse>) responseObserver);
          break;
        case METHODID_DELETE_GROUP:
          serviceImpl.deleteGroup((io.github.oncelog.client.proto.DeleteGroupRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteGroupResponse>) responseObserver);
          break;
        case METHODID_GROUP_HEARTBEAT:
          serviceImpl.groupHeartbeat((io.github.oncelog.client.proto.GroupHeartbeatRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse>) responseObserver);
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
        case METHODID_JOIN_GROUP:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.joinGroup(
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.JoinGroupResponse>) responseObserver);
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getCommitOffsetsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.CommitOffsetsRequest,
              io.github.oncelog.client.proto.CommitOffsetsResponse>(
                service, METHODID_COMMIT_OFFSETS)))
        .addMethod(
          getStageOffsetsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.StageOffsetsRequest,
              io.github.oncelog.client.proto.StageOffsetsResponse>(
                service, METHODID_STAGE_OFFSETS)))
        .addMethod(
          getFetchOffsetsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.FetchOffsetsRequest,
              io.github.oncelog.client.proto.FetchOffsetsResponse>(
                service, METHODID_FETCH_OFFSETS)))
        .addMethod(
          getListGroupsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListGroupsRequest,
              io.github.oncelog.client.proto.ListGroupsResponse>(
                service, METHODID_LIST_GROUPS)))
        .addMethod(
          getDescribeGroupMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeGroupRequest,
              io.github.oncelog.client.proto.DescribeGroupResponse>(
                service, METHODID_DESCRIBE_GROUP)))
        .addMethod(
          getDeleteGroupMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DeleteGroupRequest,
              io.github.oncelog.client.proto.DeleteGroupResponse>(
                service, METHODID_DELETE_GROUP)))
        .addMethod(
          getJoinGroupMethod(),
          io.grpc.stub.ServerCalls.asyncBidiStreamingCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.JoinGroupRequest,
              io.github.oncelog.client.proto.JoinGroupResponse>(
                service, METHODID_JOIN_GROUP)))
        .addMethod(
          getGroupHeartbeatMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.GroupHeartbeatRequest,
              io.github.oncelog.client.proto.JoinGroupResponse>(
                service, METHODID_GROUP_HEARTBEAT)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (GroupServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getCommitOffsetsMethod())
              .addMethod(getStageOffsetsMethod())
              .addMethod(getFetchOffsetsMethod())
              .addMethod(getListGroupsMethod())
              .addMethod(getDescribeGroupMethod())
              .addMethod(getDeleteGroupMethod())
              .addMethod(getJoinGroupMethod())
              .addMethod(getGroupHeartbeatMethod())
              .build();
        }
      }
    }
    return result;
  }
}
