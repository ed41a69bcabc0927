package io.github.oncelog.client;

import com.google.protobuf.ByteString;

/**
 * The right to write as (producerId, epoch).
 *
 * @param serial rises with each new one
 * @param renewAt when to get the next one
 * @param leaseToken proves it to a partition that does not know it yet
 * @param provesEach nodes may know the caller: then each batch proves its owner
 */
record Identity(
    long producerId,
    int epoch,
    int serial,
    long renewAt,
    long expireAt,
    ByteString leaseToken,
    boolean provesEach) {
  static final Identity NONE =
      new Identity(0, 0, 0, Times.NEVER, Times.NEVER, ByteString.EMPTY, false);
}
