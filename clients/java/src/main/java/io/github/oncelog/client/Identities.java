package io.github.oncelog.client;

import com.google.protobuf.ByteString;
import io.github.oncelog.client.proto.DescribeProducersRequest;
import io.github.oncelog.client.proto.LeaseProducerRequest;
import io.github.oncelog.client.proto.LeaseProducerResponse;
import io.github.oncelog.client.proto.OpenProducerRequest;
import io.github.oncelog.client.proto.OpenedPartition;
import io.github.oncelog.client.proto.ProducerServiceGrpc;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * The producer's identity: leases of producer ids, names, and where a partition goes on. All
 * partitions share one identity; one that was reset gets its own, so the others are left alone.
 */
final class Identities {
  /** An identity, and its last sequence in a partition. */
  record Acquired(Identity identity, long lastSequence) {}

  /** No answer that is final. */
  private static final OpenedPartition NONE =
      OpenedPartition.newBuilder().setError("NOT_READY").build();

  private final ProducerConfig config;
  private final Cluster cluster;
  private final long attempt;

  /** Of the call in progress. */
  final Attempts attempts = new Attempts();

  private final ReentrantLock leasing = new ReentrantLock();
  private int serial;
  // The newest epoch that this producer has leased under its name.
  private Identity newest;
  private volatile Identity current;
  // Of a lease that was not answered; 0: all were. It may have been granted, so the next one
  // repeats
  // it: under another number it would be refused, as if somebody else had taken over the name.
  private long nonce;

  Identities(ProducerConfig config, Cluster cluster) {
    this.config = config;
    this.cluster = cluster;
    attempt = Math.min(2 * Times.SECOND, cluster.requestTimeout);
  }

  /** Null: there is none yet. */
  Identity current() {
    return current;
  }

  static io.github.oncelog.client.proto.TopicPartition message(TopicPartition tp) {
    return io.github.oncelog.client.proto.TopicPartition.newBuilder()
        .setTopic(tp.topic())
        .setPartition(tp.partition())
        .build();
  }

  /**
   * An identity that the partition has not used. It goes on trying while errors are retriable;
   * records have their own deadline.
   */
  Acquired acquire(TopicPartition tp, Identity used) {
    Identity identity = unused(used);
    if (config.resumeFrom() != null) {
      return new Acquired(identity, config.resumeFrom().nextSequences().getOrDefault(tp, 0L) - 1);
    }
    return new Acquired(identity, config.producerName() == null ? -1 : open(tp, identity));
  }

  private Identity unused(Identity used) {
    leasing.lock();
    try {
      Identity known = current;
      if (known == null || Times.now() >= known.expireAt()) {
        current = lease(Times.NEVER);
        return current;
      }
      return known.serial() <= used.serial() ? lease(Times.NEVER) : known;
    } finally {
      leasing.unlock();
    }
  }

  /**
   * An identity that lasts for a transaction, if leases last so long. It is not renewed while one
   * is open: that would raise the name's epoch, and fence it.
   *
   * @param usedUp identities up to this serial will not do
   */
  Identity forTransaction(long total, int usedUp, long until) {
    leasing.lock();
    try {
      Identity identity = newest;
      if (identity == null || identity.serial() <= usedUp || !lasts(identity, total)) {
        identity = lease(until);
      }
      current = identity;
      return identity;
    } finally {
      leasing.unlock();
    }
  }

  private static boolean lasts(Identity identity, long total) {
    if (identity.renewAt() == Times.NEVER) {
      return true;
    }
    // The last tenth of a lease lies between its renewal and its end.
    long lifetime = (identity.expireAt() - identity.renewAt()) * 10;
    return identity.renewAt() - Times.now() >= Math.min(total, lifetime / 2);
  }

  /**
   * Leases the next id at 90 % of the lifetime; partitions change over when drained. Returns
   * without a lease while somebody else leases, or a transaction is open.
   */
  void renewIfDue(BooleanSupplier isTransactional) {
    if (!leasing.tryLock()) {
      return;
    }
    try {
      Identity known = current;
      boolean due = known != null && Times.now() >= known.renewAt();
      if (due && !isTransactional.getAsBoolean()) {
        current = lease(Times.now() + Times.SECOND);
      }
    } catch (OncelogException e) {
      if (!e.isRetriable()) {
        throw e;
      } // else it is tried again
    } finally {
      leasing.unlock();
    }
  }

  private Identity lease(long until) {
    serial++;
    ProducerIdentity resumeFrom = config.resumeFrom();
    if (resumeFrom != null) {
      ByteString token =
          resumeFrom.leaseToken() == null
              ? ByteString.EMPTY
              : ByteString.copyFrom(resumeFrom.leaseToken());
      return new Identity(
          resumeFrom.producerId(),
          resumeFrom.epoch(),
          serial,
          Times.NEVER,
          Times.NEVER,
          token,
          config.secured());
    }
    LeaseProducerRequest.Builder request = LeaseProducerRequest.newBuilder();
    if (config.producerName() != null) {
      // One number for all attempts of this lease: the epoch rises by one at most.
      nonce = nonce == 0 ? nonce() : nonce;
      request.setProducerName(config.producerName()).setNonce(nonce);
      if (newest != null) {
        // A name that another instance has leased since must not be taken back.
        request.setHeldProducerId(newest.producerId()).setHeldEpoch(newest.epoch());
      }
    }
    // Counted from before the call, so that it ends too early rather than too late.
    long begin = Times.now();
    LeaseProducerResponse answer = lease(request.build(), until);
    nonce = 0;
    long lifetime = answer.getLifetimeMs() * Times.MS;
    Identity identity =
        new Identity(
            answer.getProducerId(),
            answer.getEpoch(),
            serial,
            lifetime > 0 ? begin + lifetime / 10 * 9 : Times.NEVER,
            lifetime > 0 ? begin + lifetime : Times.NEVER,
            answer.getLeaseToken(),
            config.secured());
    if (config.producerName() != null) {
      newest = identity;
    }
    return identity;
  }

  private LeaseProducerResponse lease(LeaseProducerRequest request, long until) {
    for (int failures = 1; ; failures++) {
      try {
        long total = Math.min(cluster.requestTimeout, until - Times.now());
        LeaseProducerResponse answer =
            cluster.call(
                new Cluster.Limits(total, Math.min(attempt, total), attempts::failed),
                ProducerServiceGrpc.getLeaseProducerMethod(),
                request);
        attempts.clear();
        return answer;
      } catch (OncelogException e) {
        if (!e.isRetriable()) {
          nonce = 0;
        }
        if (!e.isRetriable() || Times.now() >= until) {
          throw e;
        }
      }
      Times.sleep(cluster.backoff.delay(failures));
    }
  }

  /** One number for all attempts of a call: repeated, it raises an epoch once. */
  static long nonce() {
    return ThreadLocalRandom.current().nextLong() | 1;
  }

  /** Fences the predecessor in this partition and returns the last stored sequence. */
  private long open(TopicPartition tp, Identity identity) {
    OpenProducerRequest request =
        OpenProducerRequest.newBuilder()
            .setProducerId(identity.producerId())
            .setEpoch(identity.epoch())
            .setLeaseToken(identity.leaseToken())
            .addPartitions(message(tp))
            .build();
    for (int failures = 1; ; failures++) {
      String address = cluster.leaders.address(tp);
      OpenedPartition opened = openAt(address, request);
      switch (opened.getError()) {
        case "" -> {
          attempts.clear();
          return opened.getLastSequence();
        }
        case "FENCED" ->
            throw new OncelogException(
                    ErrorKind.FENCED,
                    "%s: producerName \"%s\" was taken over, epoch %d",
                    tp,
                    config.producerName(),
                    opened.getCurrentEpoch())
                .with(new Detail().at(tp).epoch(opened.getCurrentEpoch()));
        case "UNKNOWN_PRODUCER", "PRODUCER_EXPIRED" ->
            throw new OncelogException(
                ErrorKind.UNKNOWN_PRODUCER,
                "%s: %s: %s",
                tp,
                opened.getError(),
                opened.getMessage());
        default -> {
          if (opened != NONE) {
            String text = opened.getError() + ": " + opened.getMessage();
            attempts.failed(new OncelogException(ErrorKind.NOT_READY, "%s: %s", tp, text));
          }
          cluster.leaderFailed(address, failures);
        }
      }
      Times.sleep(cluster.backoff.delay(failures));
      if (opened.getError().equals("NOT_LEADER") && failures == 1) {
        cluster.leaders.hint(tp, opened.getLeaderId(), opened.getLeaderAddress());
        continue;
      }
      cluster.leaders.suspect(tp);
      try {
        cluster.refresh(List.of(tp.topic()));
      } catch (OncelogException e) {
        if (!e.isRetriable()) {
          throw e;
        }
      }
    }
  }

  /** The node's message; an error that is worth a retry is one of its words. */
  private OpenedPartition openAt(String address, OpenProducerRequest request) {
    if (address.isEmpty()) {
      return NONE;
    }
    try {
      var answer =
          cluster.callAt(address, attempt, ProducerServiceGrpc.getOpenProducerMethod(), request);
      if (answer.getPartitionsCount() != 1) {
        throw new OncelogException(
            ErrorKind.INTERNAL,
            "the node gave %d answers to 1 question",
            answer.getPartitionsCount());
      }
      return answer.getPartitions(0);
    } catch (OncelogException e) {
      if (e.isRetriable()) {
        attempts.failed(e);
        return NONE;
      }
      throw e;
    }
  }

  /** The producer's last sequence in a partition, from its leader; -1: none. */
  long lastStored(TopicPartition tp, Identity identity) {
    var answer =
        cluster.callLeader(
            tp,
            ProducerServiceGrpc.getDescribeProducersMethod(),
            DescribeProducersRequest.newBuilder()
                .setTopic(tp.topic())
                .setPartition(tp.partition())
                .setProducerId(identity.producerId())
                .setLimit(1)
                .build());
    return answer.getProducersCount() == 0 ? -1 : answer.getProducers(0).getLastSequence();
  }
}
