/** Kafka's 32-bit murmur2, seed 0x9747b28c: where Kafka's Java producer puts a key. */

const M = 0x5bd1e995;

export function keyPartition(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

/** The hash, as a signed number. */
export function murmur2(data: Uint8Array): number {
  const byte = (at: number) => data[at] ?? 0;
  let h = 0x9747b28c ^ data.length;
  let at = 0;
  for (; data.length - at >= 4; at += 4) {
    let k = byte(at) | (byte(at + 1) << 8) | (byte(at + 2) << 16) | (byte(at + 3) << 24);
    k = Math.imul(k, M);
    k = Math.imul(k ^ (k >>> 24), M);
    h = Math.imul(h, M) ^ k;
  }
  if (at < data.length) {
    for (let i = data.length - 1; i >= at; i--) h ^= byte(i) << (8 * (i - at));
    h = Math.imul(h, M);
  }
  h = Math.imul(h ^ (h >>> 13), M);
  return h ^ (h >>> 15);
}
