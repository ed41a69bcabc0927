package io.github.oncelog.client.proto;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class ClusterServiceGrpc {

  private ClusterServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "oncelog.v1.ClusterService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeClusterRequest,
      io.github.oncelog.client.proto.DescribeClusterResponse> getDescribeClusterMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeCluster",
      requestType = io.github.oncelog.client.proto.DescribeClusterRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeClusterResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeClusterRequest,
      io.github.oncelog.client.proto.DescribeClusterResponse> getDescribeClusterMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeClusterRequest, io.github.oncelog.client.proto.DescribeClusterResponse> getDescribeClusterMethod;
    if ((getDescribeClusterMethod = ClusterServiceGrpc.getDescribeClusterMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getDescribeClusterMethod = ClusterServiceGrpc.getDescribeClusterMethod) == null) {
          ClusterServiceGrpc.getDescribeClusterMethod = getDescribeClusterMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeClusterRequest, io.github.oncelog.client.proto.DescribeClusterResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeCluster"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeClusterRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeClusterResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeClusterMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CreateTopicRequest,
      io.github.oncelog.client.proto.CreateTopicResponse> getCreateTopicMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CreateTopic",
      requestType = io.github.oncelog.client.proto.CreateTopicRequest.class,
      responseType = io.github.oncelog.client.proto.CreateTopicResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CreateTopicRequest,
      io.github.oncelog.client.proto.CreateTopicResponse> getCreateTopicMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.CreateTopicRequest, io.github.oncelog.client.proto.CreateTopicResponse> getCreateTopicMethod;
    if ((getCreateTopicMethod = ClusterServiceGrpc.getCreateTopicMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getCreateTopicMethod = ClusterServiceGrpc.getCreateTopicMethod) == null) {
          ClusterServiceGrpc.getCreateTopicMethod = getCreateTopicMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.CreateTopicRequest, io.github.oncelog.client.proto.CreateTopicResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CreateTopic"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CreateTopicRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.CreateTopicResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getCreateTopicMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteTopicRequest,
      io.github.oncelog.client.proto.DeleteTopicResponse> getDeleteTopicMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DeleteTopic",
      requestType = io.github.oncelog.client.proto.DeleteTopicRequest.class,
      responseType = io.github.oncelog.client.proto.DeleteTopicResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteTopicRequest,
      io.github.oncelog.client.proto.DeleteTopicResponse> getDeleteTopicMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DeleteTopicRequest, io.github.oncelog.client.proto.DeleteTopicResponse> getDeleteTopicMethod;
    if ((getDeleteTopicMethod = ClusterServiceGrpc.getDeleteTopicMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getDeleteTopicMethod = ClusterServiceGrpc.getDeleteTopicMethod) == null) {
          ClusterServiceGrpc.getDeleteTopicMethod = getDeleteTopicMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DeleteTopicRequest, io.github.oncelog.client.proto.DeleteTopicResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DeleteTopic"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DeleteTopicRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DeleteTopicResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDeleteTopicMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterTopicRequest,
      io.github.oncelog.client.proto.AlterTopicResponse> getAlterTopicMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterTopic",
      requestType = io.github.oncelog.client.proto.AlterTopicRequest.class,
      responseType = io.github.oncelog.client.proto.AlterTopicResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterTopicRequest,
      io.github.oncelog.client.proto.AlterTopicResponse> getAlterTopicMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.AlterTopicRequest, io.github.oncelog.client.proto.AlterTopicResponse> getAlterTopicMethod;
    if ((getAlterTopicMethod = ClusterServiceGrpc.getAlterTopicMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getAlterTopicMethod = ClusterServiceGrpc.getAlterTopicMethod) == null) {
          ClusterServiceGrpc.getAlterTopicMethod = getAlterTopicMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.AlterTopicRequest, io.github.oncelog.client.proto.AlterTopicResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterTopic"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterTopicRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.AlterTopicResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getAlterTopicMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResizeTopicRequest,
      io.github.oncelog.client.proto.ResizeTopicResponse> getResizeTopicMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ResizeTopic",
      requestType = io.github.oncelog.client.proto.ResizeTopicRequest.class,
      responseType = io.github.oncelog.client.proto.ResizeTopicResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResizeTopicRequest,
      io.github.oncelog.client.proto.ResizeTopicResponse> getResizeTopicMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ResizeTopicRequest, io.github.oncelog.client.proto.ResizeTopicResponse> getResizeTopicMethod;
    if ((getResizeTopicMethod = ClusterServiceGrpc.getResizeTopicMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getResizeTopicMethod = ClusterServiceGrpc.getResizeTopicMethod) == null) {
          ClusterServiceGrpc.getResizeTopicMethod = getResizeTopicMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ResizeTopicRequest, io.github.oncelog.client.proto.ResizeTopicResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ResizeTopic"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResizeTopicRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ResizeTopicResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getResizeTopicMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTopicsRequest,
      io.github.oncelog.client.proto.DescribeTopicsResponse> getDescribeTopicsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeTopics",
      requestType = io.github.oncelog.client.proto.DescribeTopicsRequest.class,
      responseType = io.github.oncelog.client.proto.DescribeTopicsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTopicsRequest,
      io.github.oncelog.client.proto.DescribeTopicsResponse> getDescribeTopicsMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.DescribeTopicsRequest, io.github.oncelog.client.proto.DescribeTopicsResponse> getDescribeTopicsMethod;
    if ((getDescribeTopicsMethod = ClusterServiceGrpc.getDescribeTopicsMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getDescribeTopicsMethod = ClusterServiceGrpc.getDescribeTopicsMethod) == null) {
          ClusterServiceGrpc.getDescribeTopicsMethod = getDescribeTopicsMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.DescribeTopicsRequest, io.github.oncelog.client.proto.DescribeTopicsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeTopics"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeTopicsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.DescribeTopicsResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getDescribeTopicsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ReassignPartitionRequest,
      io.github.oncelog.client.proto.ReassignPartitionResponse> getReassignPartitionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ReassignPartition",
      requestType = io.github.oncelog.client.proto.ReassignPartitionRequest.class,
      responseType = io.github.oncelog.client.proto.ReassignPartitionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ReassignPartitionRequest,
      io.github.oncelog.client.proto.ReassignPartitionResponse> getReassignPartitionMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ReassignPartitionRequest, io.github.oncelog.client.proto.ReassignPartitionResponse> getReassignPartitionMethod;
    if ((getReassignPartitionMethod = ClusterServiceGrpc.getReassignPartitionMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getReassignPartitionMethod = ClusterServiceGrpc.getReassignPartitionMethod) == null) {
          ClusterServiceGrpc.getReassignPartitionMethod = getReassignPartitionMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ReassignPartitionRequest, io.github.oncelog.client.proto.ReassignPartitionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ReassignPartition"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ReassignPartitionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ReassignPartitionResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getReassignPartitionMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.TransferLeadershipRequest,
      io.github.oncelog.client.proto.TransferLeadershipResponse> getTransferLeadershipMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "TransferLeadership",
      requestType = io.github.oncelog.client.proto.TransferLeadershipRequest.class,
      responseType = io.github.oncelog.client.proto.TransferLeadershipResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.TransferLeadershipRequest,
      io.github.oncelog.client.proto.TransferLeadershipResponse> getTransferLeadershipMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.TransferLeadershipRequest, io.github.oncelog.client.proto.TransferLeadershipResponse> getTransferLeadershipMethod;
    if ((getTransferLeadershipMethod = ClusterServiceGrpc.getTransferLeadershipMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getTransferLeadershipMethod = ClusterServiceGrpc.getTransferLeadershipMethod) == null) {
          ClusterServiceGrpc.getTransferLeadershipMethod = getTransferLeadershipMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.TransferLeadershipRequest, io.github.oncelog.client.proto.TransferLeadershipResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "TransferLeadership"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.TransferLeadershipRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.TransferLeadershipResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getTransferLeadershipMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ChangeNodeRequest,
      io.github.oncelog.client.proto.ChangeNodeResponse> getChangeNodeMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ChangeNode",
      requestType = io.github.oncelog.client.proto.ChangeNodeRequest.class,
      responseType = io.github.oncelog.client.proto.ChangeNodeResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ChangeNodeRequest,
      io.github.oncelog.client.proto.ChangeNodeResponse> getChangeNodeMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ChangeNodeRequest, io.github.oncelog.client.proto.ChangeNodeResponse> getChangeNodeMethod;
    if ((getChangeNodeMethod = ClusterServiceGrpc.getChangeNodeMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getChangeNodeMethod = ClusterServiceGrpc.getChangeNodeMethod) == null) {
          ClusterServiceGrpc.getChangeNodeMethod = getChangeNodeMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ChangeNodeRequest, io.github.oncelog.client.proto.ChangeNodeResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ChangeNode"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ChangeNodeRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ChangeNodeResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getChangeNodeMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListNodesRequest,
      io.github.oncelog.client.proto.ListNodesResponse> getListNodesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListNodes",
      requestType = io.github.oncelog.client.proto.ListNodesRequest.class,
      responseType = io.github.oncelog.client.proto.ListNodesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListNodesRequest,
      io.github.oncelog.client.proto.ListNodesResponse> getListNodesMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.ListNodesRequest, io.github.oncelog.client.proto.ListNodesResponse> getListNodesMethod;
    if ((getListNodesMethod = ClusterServiceGrpc.getListNodesMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getListNodesMethod = ClusterServiceGrpc.getListNodesMethod) == null) {
          ClusterServiceGrpc.getListNodesMethod = getListNodesMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.ListNodesRequest, io.github.oncelog.client.proto.ListNodesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListNodes"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListNodesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.ListNodesResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getListNodesMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BalanceClusterRequest,
      io.github.oncelog.client.proto.BalanceClusterResponse> getBalanceClusterMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "BalanceCluster",
      requestType = io.github.oncelog.client.proto.BalanceClusterRequest.class,
      responseType = io.github.oncelog.client.proto.BalanceClusterResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BalanceClusterRequest,
      io.github.oncelog.client.proto.BalanceClusterResponse> getBalanceClusterMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.BalanceClusterRequest, io.github.oncelog.client.proto.BalanceClusterResponse> getBalanceClusterMethod;
    if ((getBalanceClusterMethod = ClusterServiceGrpc.getBalanceClusterMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getBalanceClusterMethod = ClusterServiceGrpc.getBalanceClusterMethod) == null) {
          ClusterServiceGrpc.getBalanceClusterMethod = getBalanceClusterMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.BalanceClusterRequest, io.github.oncelog.client.proto.BalanceClusterResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "BalanceCluster"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BalanceClusterRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.BalanceClusterResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getBalanceClusterMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FinalizeUpgradeRequest,
      io.github.oncelog.client.proto.FinalizeUpgradeResponse> getFinalizeUpgradeMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "FinalizeUpgrade",
      requestType = io.github.oncelog.client.proto.FinalizeUpgradeRequest.class,
      responseType = io.github.oncelog.client.proto.FinalizeUpgradeResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FinalizeUpgradeRequest,
      io.github.oncelog.client.proto.FinalizeUpgradeResponse> getFinalizeUpgradeMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.FinalizeUpgradeRequest, io.github.oncelog.client.proto.FinalizeUpgradeResponse> getFinalizeUpgradeMethod;
    if ((getFinalizeUpgradeMethod = ClusterServiceGrpc.getFinalizeUpgradeMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getFinalizeUpgradeMethod = ClusterServiceGrpc.getFinalizeUpgradeMethod) == null) {
          ClusterServiceGrpc.getFinalizeUpgradeMethod = getFinalizeUpgradeMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.FinalizeUpgradeRequest, io.github.oncelog.client.proto.FinalizeUpgradeResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "FinalizeUpgrade"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FinalizeUpgradeRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.FinalizeUpgradeResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getFinalizeUpgradeMethod;
  }

  private static volatile io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SetClusterSettingRequest,
      io.github.oncelog.client.proto.SetClusterSettingResponse> getSetClusterSettingMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "SetClusterSetting",
      requestType = io.github.oncelog.client.proto.SetClusterSettingRequest.class,
      responseType = io.github.oncelog.client.proto.SetClusterSettingResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SetClusterSettingRequest,
      io.github.oncelog.client.proto.SetClusterSettingResponse> getSetClusterSettingMethod() {
    io.grpc.MethodDescriptor<io.github.oncelog.client.proto.SetClusterSettingRequest, io.github.oncelog.client.proto.SetClusterSettingResponse> getSetClusterSettingMethod;
    if ((getSetClusterSettingMethod = ClusterServiceGrpc.getSetClusterSettingMethod) == null) {
      synchronized (ClusterServiceGrpc.class) {
        if ((getSetClusterSettingMethod = ClusterServiceGrpc.getSetClusterSettingMethod) == null) {
          ClusterServiceGrpc.getSetClusterSettingMethod = getSetClusterSettingMethod =
              io.grpc.MethodDescriptor.<io.github.oncelog.client.proto.SetClusterSettingRequest, io.github.oncelog.client.proto.SetClusterSettingResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "SetClusterSetting"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.SetClusterSettingRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.lite.ProtoLiteUtils.marshaller(
                  io.github.oncelog.client.proto.SetClusterSettingResponse.getDefaultInstance()))
              .build();
        }
      }
    }
    return getSetClusterSettingMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static ClusterServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ClusterServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ClusterServiceStub>() {
        @java.lang.Override
        public ClusterServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ClusterServiceStub(channel, callOptions);
        }
      };
    return ClusterServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static ClusterServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ClusterServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ClusterServiceBlockingV2Stub>() {
        @java.lang.Override
        public ClusterServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ClusterServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return ClusterServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static ClusterServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ClusterServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ClusterServiceBlockingStub>() {
        @java.lang.Override
        public ClusterServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ClusterServiceBlockingStub(channel, callOptions);
        }
      };
    return ClusterServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static ClusterServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<ClusterServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<ClusterServiceFutureStub>() {
        @java.lang.Override
        public ClusterServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new ClusterServiceFutureStub(channel, callOptions);
        }
      };
    return ClusterServiceFutureStub.newStub(factory, channel);
  }

  /**
   */
  public interface AsyncService {

    /**
     */
    default void describeCluster(io.github.oncelog.client.proto.DescribeClusterRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeClusterResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeClusterMethod(), responseObserver);
    }

    /**
     */
    default void createTopic(io.github.oncelog.client.proto.CreateTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CreateTopicResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCreateTopicMethod(), responseObserver);
    }

    /**
     */
    default void deleteTopic(io.github.oncelog.client.proto.DeleteTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteTopicResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDeleteTopicMethod(), responseObserver);
    }

    /**
     */
    default void alterTopic(io.github.oncelog.client.proto.AlterTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterTopicResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterTopicMethod(), responseObserver);
    }

    /**
     * <pre>
     * More partitions for a topic, or another number of replicas; returns when new partitions have
     * leaders, and when another number of replicas is decided: DescribeTopics shows how far it is.
     * </pre>
     */
    default void resizeTopic(io.github.oncelog.client.proto.ResizeTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResizeTopicResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getResizeTopicMethod(), responseObserver);
    }

    /**
     */
    default void describeTopics(io.github.oncelog.client.proto.DescribeTopicsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTopicsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeTopicsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Has a partition moved to other nodes; returns when that is decided. DescribeTopics shows how
     * far it is.
     * </pre>
     */
    default void reassignPartition(io.github.oncelog.client.proto.ReassignPartitionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ReassignPartitionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getReassignPartitionMethod(), responseObserver);
    }

    /**
     */
    default void transferLeadership(io.github.oncelog.client.proto.TransferLeadershipRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.TransferLeadershipResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getTransferLeadershipMethod(), responseObserver);
    }

    /**
     * <pre>
     * What becomes of a node; returns when that is decided. ListNodes shows how far it is.
     * </pre>
     */
    default void changeNode(io.github.oncelog.client.proto.ChangeNodeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ChangeNodeResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getChangeNodeMethod(), responseObserver);
    }

    /**
     */
    default void listNodes(io.github.oncelog.client.proto.ListNodesRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListNodesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListNodesMethod(), responseObserver);
    }

    /**
     * <pre>
     * Has replicas and leaderships spread over the nodes; returns when that is decided. The same
     * call shows how far it is.
     * </pre>
     */
    default void balanceCluster(io.github.oncelog.client.proto.BalanceClusterRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BalanceClusterResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getBalanceClusterMethod(), responseObserver);
    }

    /**
     * <pre>
     * Once all nodes run the newer release: what it has may be used, and none can go back.
     * </pre>
     */
    default void finalizeUpgrade(io.github.oncelog.client.proto.FinalizeUpgradeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FinalizeUpgradeResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getFinalizeUpgradeMethod(), responseObserver);
    }

    /**
     */
    default void setClusterSetting(io.github.oncelog.client.proto.SetClusterSettingRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.SetClusterSettingResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSetClusterSettingMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service ClusterService.
   */
  public static abstract class ClusterServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return ClusterServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service ClusterService.
   */
  public static final class ClusterServiceStub
      extends io.grpc.stub.AbstractAsyncStub<ClusterServiceStub> {
    private ClusterServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ClusterServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ClusterServiceStub(channel, callOptions);
    }

    /**
     */
    public void describeCluster(io.github.oncelog.client.proto.DescribeClusterRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeClusterResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeClusterMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void createTopic(io.github.oncelog.client.proto.CreateTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CreateTopicResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCreateTopicMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void deleteTopic(io.github.oncelog.client.proto.DeleteTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteTopicResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDeleteTopicMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void alterTopic(io.github.oncelog.client.proto.AlterTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterTopicResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterTopicMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * More partitions for a topic, or another number of replicas; returns when new partitions have
     * leaders, and when another number of replicas is decided: DescribeTopics shows how far it is.
     * </pre>
     */
    public void resizeTopic(io.github.oncelog.client.proto.ResizeTopicRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResizeTopicResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getResizeTopicMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void describeTopics(io.github.oncelog.client.proto.DescribeTopicsRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTopicsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeTopicsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Has a partition moved to other nodes; returns when that is decided. DescribeTopics shows how
     * far it is.
     * </pre>
     */
    public void reassignPartition(io.github.oncelog.client.proto.ReassignPartitionRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ReassignPartitionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getReassignPartitionMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void transferLeadership(io.github.oncelog.client.proto.TransferLeadershipRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.TransferLeadershipResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getTransferLeadershipMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * What becomes of a node; returns when that is decided. ListNodes shows how far it is.
     * </pre>
     */
    public void changeNode(io.github.oncelog.client.proto.ChangeNodeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ChangeNodeResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getChangeNodeMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void listNodes(io.github.oncelog.client.proto.ListNodesRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListNodesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListNodesMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Has replicas and leaderships spread over the nodes; returns when that is decided. The same
     * call shows how far it is.
     * </pre>
     */
    public void balanceCluster(io.github.oncelog.client.proto.BalanceClusterRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BalanceClusterResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getBalanceClusterMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Once all nodes run the newer release: what it has may be used, and none can go back.
     * </pre>
     */
    public void finalizeUpgrade(io.github.oncelog.client.proto.FinalizeUpgradeRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FinalizeUpgradeResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getFinalizeUpgradeMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     */
    public void setClusterSetting(io.github.oncelog.client.proto.SetClusterSettingRequest request,
        io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.SetClusterSettingResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getSetClusterSettingMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service ClusterService.
   */
  public static final class ClusterServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<ClusterServiceBlockingV2Stub> {
    private ClusterServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ClusterServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ClusterServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeClusterResponse describeCluster(io.github.oncelog.client.proto.DescribeClusterRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeClusterMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.CreateTopicResponse createTopic(io.github.oncelog.client.proto.CreateTopicRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCreateTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DeleteTopicResponse deleteTopic(io.github.oncelog.client.proto.DeleteTopicRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDeleteTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.AlterTopicResponse alterTopic(io.github.oncelog.client.proto.AlterTopicRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterTopicMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * More partitions for a topic, or another number of replicas; returns when new partitions have
     * leaders, and when another number of replicas is decided: DescribeTopics shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResizeTopicResponse resizeTopic(io.github.oncelog.client.proto.ResizeTopicRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getResizeTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeTopicsResponse describeTopics(io.github.oncelog.client.proto.DescribeTopicsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeTopicsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Has a partition moved to other nodes; returns when that is decided. DescribeTopics shows how
     * far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ReassignPartitionResponse reassignPartition(io.github.oncelog.client.proto.ReassignPartitionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getReassignPartitionMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.TransferLeadershipResponse transferLeadership(io.github.oncelog.client.proto.TransferLeadershipRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getTransferLeadershipMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * What becomes of a node; returns when that is decided. ListNodes shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ChangeNodeResponse changeNode(io.github.oncelog.client.proto.ChangeNodeRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getChangeNodeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListNodesResponse listNodes(io.github.oncelog.client.proto.ListNodesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListNodesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Has replicas and leaderships spread over the nodes; returns when that is decided. The same
     * call shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.BalanceClusterResponse balanceCluster(io.github.oncelog.client.proto.BalanceClusterRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getBalanceClusterMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Once all nodes run the newer release: what it has may be used, and none can go back.
     * </pre>
     */
    public io.github.oncelog.client.proto.FinalizeUpgradeResponse finalizeUpgrade(io.github.oncelog.client.proto.FinalizeUpgradeRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getFinalizeUpgradeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.SetClusterSettingResponse setClusterSetting(io.github.oncelog.client.proto.SetClusterSettingRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getSetClusterSettingMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service ClusterService.
   */
  public static final class ClusterServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<ClusterServiceBlockingStub> {
    private ClusterServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ClusterServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ClusterServiceBlockingStub(channel, callOptions);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeClusterResponse describeCluster(io.github.oncelog.client.proto.DescribeClusterRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeClusterMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.CreateTopicResponse createTopic(io.github.oncelog.client.proto.CreateTopicRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCreateTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DeleteTopicResponse deleteTopic(io.github.oncelog.client.proto.DeleteTopicRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDeleteTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.AlterTopicResponse alterTopic(io.github.oncelog.client.proto.AlterTopicRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterTopicMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * More partitions for a topic, or another number of replicas; returns when new partitions have
     * leaders, and when another number of replicas is decided: DescribeTopics shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ResizeTopicResponse resizeTopic(io.github.oncelog.client.proto.ResizeTopicRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getResizeTopicMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.DescribeTopicsResponse describeTopics(io.github.oncelog.client.proto.DescribeTopicsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeTopicsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Has a partition moved to other nodes; returns when that is decided. DescribeTopics shows how
     * far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ReassignPartitionResponse reassignPartition(io.github.oncelog.client.proto.ReassignPartitionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getReassignPartitionMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.TransferLeadershipResponse transferLeadership(io.github.oncelog.client.proto.TransferLeadershipRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getTransferLeadershipMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * What becomes of a node; returns when that is decided. ListNodes shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.ChangeNodeResponse changeNode(io.github.oncelog.client.proto.ChangeNodeRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getChangeNodeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.ListNodesResponse listNodes(io.github.oncelog.client.proto.ListNodesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListNodesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Has replicas and leaderships spread over the nodes; returns when that is decided. The same
     * call shows how far it is.
     * </pre>
     */
    public io.github.oncelog.client.proto.BalanceClusterResponse balanceCluster(io.github.oncelog.client.proto.BalanceClusterRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getBalanceClusterMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Once all nodes run the newer release: what it has may be used, and none can go back.
     * </pre>
     */
    public io.github.oncelog.client.proto.FinalizeUpgradeResponse finalizeUpgrade(io.github.oncelog.client.proto.FinalizeUpgradeRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getFinalizeUpgradeMethod(), getCallOptions(), request);
    }

    /**
     */
    public io.github.oncelog.client.proto.SetClusterSettingResponse setClusterSetting(io.github.oncelog.client.proto.SetClusterSettingRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getSetClusterSettingMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service ClusterService.
   */
  public static final class ClusterServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<ClusterServiceFutureStub> {
    private ClusterServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected ClusterServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new ClusterServiceFutureStub(channel, callOptions);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeClusterResponse> describeCluster(
        io.github.oncelog.client.proto.DescribeClusterRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeClusterMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.CreateTopicResponse> createTopic(
        io.github.oncelog.client.proto.CreateTopicRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCreateTopicMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DeleteTopicResponse> deleteTopic(
        io.github.oncelog.client.proto.DeleteTopicRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDeleteTopicMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.AlterTopicResponse> alterTopic(
        io.github.oncelog.client.proto.AlterTopicRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterTopicMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * More partitions for a topic, or another number of replicas; returns when new partitions have
     * leaders, and when another number of replicas is decided: DescribeTopics shows how far it is.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ResizeTopicResponse> resizeTopic(
        io.github.oncelog.client.proto.ResizeTopicRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getResizeTopicMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.DescribeTopicsResponse> describeTopics(
        io.github.oncelog.client.proto.DescribeTopicsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeTopicsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Has a partition moved to other nodes; returns when that is decided. DescribeTopics shows how
     * far it is.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ReassignPartitionResponse> reassignPartition(
        io.github.oncelog.client.proto.ReassignPartitionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getReassignPartitionMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.TransferLeadershipResponse> transferLeadership(
        io.github.oncelog.client.proto.TransferLeadershipRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getTransferLeadershipMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * What becomes of a node; returns when that is decided. ListNodes shows how far it is.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ChangeNodeResponse> changeNode(
        io.github.oncelog.client.proto.ChangeNodeRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getChangeNodeMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.ListNodesResponse> listNodes(
        io.github.oncelog.client.proto.ListNodesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListNodesMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Has replicas and leaderships spread over the nodes; returns when that is decided. The same
     * call shows how far it is.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.BalanceClusterResponse> balanceCluster(
        io.github.oncelog.client.proto.BalanceClusterRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getBalanceClusterMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Once all nodes run the newer release: what it has may be used, and none can go back.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.FinalizeUpgradeResponse> finalizeUpgrade(
        io.github.oncelog.client.proto.FinalizeUpgradeRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getFinalizeUpgradeMethod(), getCallOptions()), request);
    }

    /**
     */
    public com.google.common.util.concurrent.ListenableFuture<io.github.oncelog.client.proto.SetClusterSettingResponse> setClusterSetting(
        io.github.oncelog.client.proto.SetClusterSettingRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getSetClusterSettingMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_DESCRIBE_CLUSTER = 0;
  private static final int METHODID_CREATE_TOPIC = 1;
  private static final int METHODID_DELETE_TOPIC = 2;
  private static final int METHODID_ALTER_TOPIC = 3;
  private static final int METHODID_RESIZE_TOPIC = 4;
  private static final int METHODID_DESCRIBE_TOPICS = 5;
  private static final int METHODID_REASSIGN_PARTITION = 6;
  private static final int METHODID_TRANSFER_LEADERSHIP = 7;
  private static final int METHODID_CHANGE_NODE = 8;
  private static final int METHODID_LIST_NODES = 9;
  private static final int METHODID_BALANCE_CLUSTER = 10;
  private static final int METHODID_FINALIZE_UPGRADE = 11;
  private static final int METHODID_SET_CLUSTER_SETTING = 12;

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
        case METHODID_DESCRIBE_CLUSTER:
          serviceImpl.describeCluster((io.github.oncelog.client.proto.DescribeClusterRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeClusterResponse>) responseObserver);
          break;
        case METHODID_CREATE_TOPIC:
          serviceImpl.createTopic((io.github.oncelog.client.proto.CreateTopicRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.CreateTopicResponse>) responseObserver);
          break;
        case METHODID_DELETE_TOPIC:
          serviceImpl.deleteTopic((io.github.oncelog.client.proto.DeleteTopicRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DeleteTopicResponse>) responseObserver);
          break;
        case METHODID_ALTER_TOPIC:
          serviceImpl.alterTopic((io.github.oncelog.client.proto.AlterTopicRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.AlterTopicResponse>) responseObserver);
          break;
        case METHODID_RESIZE_TOPIC:
          serviceImpl.resizeTopic((io.github.oncelog.client.proto.ResizeTopicRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ResizeTopicResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_TOPICS:
          serviceImpl.describeTopics((io.github.oncelog.client.proto.DescribeTopicsRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.DescribeTopicsResponse>) responseObserver);
          break;
        case METHODID_REASSIGN_PARTITION:
          serviceImpl.reassignPartition((io.github.oncelog.client.proto.ReassignPartitionRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ReassignPartitionResponse>) responseObserver);
          break;
        case METHODID_TRANSFER_LEADERSHIP:
          serviceImpl.transferLeadership((io.github.oncelog.client.proto.TransferLeadershipRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.TransferLeadershipResponse>) responseObserver);
          break;
        case METHODID_CHANGE_NODE:
          serviceImpl.changeNode((io.github.oncelog.client.proto.ChangeNodeRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ChangeNodeResponse>) responseObserver);
          break;
        case METHODID_LIST_NODES:
          serviceImpl.listNodes((io.github.oncelog.client.proto.ListNodesRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.ListNodesResponse>) responseObserver);
          break;
        case METHODID_BALANCE_CLUSTER:
          serviceImpl.balanceCluster((io.github.oncelog.client.proto.BalanceClusterRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.BalanceClusterResponse>) responseObserver);
          break;
        case METHODID_FINALIZE_UPGRADE:
          serviceImpl.finalizeUpgrade((io.github.oncelog.client.proto.FinalizeUpgradeRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.FinalizeUpgradeResponse>) responseObserver);
          break;
        case METHODID_SET_CLUSTER_SETTING:
          serviceImpl.setClusterSetting((io.github.oncelog.client.proto.SetClusterSettingRequest) request,
              (io.grpc.stub.StreamObserver<io.github.oncelog.client.proto.SetClusterSettingResponse>) responseObserver);
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
          getDescribeClusterMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeClusterRequest,
              io.github.oncelog.client.proto.DescribeClusterResponse>(
                service, METHODID_DESCRIBE_CLUSTER)))
        .addMethod(
          getCreateTopicMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.CreateTopicRequest,
              io.github.oncelog.client.proto.CreateTopicResponse>(
                service, METHODID_CREATE_TOPIC)))
        .addMethod(
          getDeleteTopicMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DeleteTopicRequest,
              io.github.oncelog.client.proto.DeleteTopicResponse>(
                service, METHODID_DELETE_TOPIC)))
        .addMethod(
          getAlterTopicMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.AlterTopicRequest,
              io.github.oncelog.client.proto.AlterTopicResponse>(
                service, METHODID_ALTER_TOPIC)))
        .addMethod(
          getResizeTopicMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ResizeTopicRequest,
              io.github.oncelog.client.proto.ResizeTopicResponse>(
                service, METHODID_RESIZE_TOPIC)))
        .addMethod(
          getDescribeTopicsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.DescribeTopicsRequest,
              io.github.oncelog.client.proto.DescribeTopicsResponse>(
                service, METHODID_DESCRIBE_TOPICS)))
        .addMethod(
          getReassignPartitionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ReassignPartitionRequest,
              io.github.oncelog.client.proto.ReassignPartitionResponse>(
                service, METHODID_REASSIGN_PARTITION)))
        .addMethod(
          getTransferLeadershipMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.TransferLeadershipRequest,
              io.github.oncelog.client.proto.TransferLeadershipResponse>(
                service, METHODID_TRANSFER_LEADERSHIP)))
        .addMethod(
          getChangeNodeMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ChangeNodeRequest,
              io.github.oncelog.client.proto.ChangeNodeResponse>(
                service, METHODID_CHANGE_NODE)))
        .addMethod(
          getListNodesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.ListNodesRequest,
              io.github.oncelog.client.proto.ListNodesResponse>(
                service, METHODID_LIST_NODES)))
        .addMethod(
          getBalanceClusterMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.BalanceClusterRequest,
              io.github.oncelog.client.proto.BalanceClusterResponse>(
                service, METHODID_BALANCE_CLUSTER)))
        .addMethod(
          getFinalizeUpgradeMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.FinalizeUpgradeRequest,
              io.github.oncelog.client.proto.FinalizeUpgradeResponse>(
                service, METHODID_FINALIZE_UPGRADE)))
        .addMethod(
          getSetClusterSettingMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              io.github.oncelog.client.proto.SetClusterSettingRequest,
              io.github.oncelog.client.proto.SetClusterSettingResponse>(
                service, METHODID_SET_CLUSTER_SETTING)))
        .build();
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (ClusterServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .addMethod(getDescribeClusterMethod())
              .addMethod(getCreateTopicMethod())
              .addMethod(getDeleteTopicMethod())
              .addMethod(getAlterTopicMethod())
              .addMethod(getResizeTopicMethod())
              .addMethod(getDescribeTopicsMethod())
              .addMethod(getReassignPartitionMethod())
              .addMethod(getTransferLeadershipMethod())
              .addMethod(getChangeNodeMethod())
              .addMethod(getListNodesMethod())
              .addMethod(getBalanceClusterMethod())
              .addMethod(getFinalizeUpgradeMethod())
              .addMethod(getSetClusterSettingMethod())
              .build();
        }
      }
    }
    return result;
  }
}
