package io.github.oncelog.client;

/** Kafka's 32-bit murmur2, seed 0x9747b28c: where Kafka's Java producer puts a key. */
final class Murmur2 {
  private static final int M = 0x5bd1e995;

  private Murmur2() {}

  static int partition(byte[] key, int partitions) {
    return (hash(key) & 0x7fffffff) % partitions;
  }

  static int hash(byte[] data) {
    int h = 0x9747b28c ^ data.length;
    int at = 0;
    for (; data.length - at >= 4; at += 4) {
      int k = Bytes.getInt(data, at) * M;
      k = (k ^ k >>> 24) * M;
      h = h * M ^ k;
    }
    if (at < data.length) {
      for (int i = data.length - 1; i >= at; i--) {
        h ^= (data[i] & 0xff) << 8 * (i - at);
      }
      h *= M;
    }
    h = (h ^ h >>> 13) * M;
    return h ^ h >>> 15;
  }
}
