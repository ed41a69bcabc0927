package io.github.oncelog.client;

import io.github.oncelog.client.proto.Codec;

/** How payloads are compressed on their way and in the log. */
public enum Compression {
  /** Sends payloads as they are. */
  NONE(Codec.CODEC_NONE),
  /** Compresses most. */
  ZSTD(Codec.CODEC_ZSTD),
  /** Costs least. */
  LZ4(Codec.CODEC_LZ4);

  final Codec codec;

  Compression(Codec codec) {
    this.codec = codec;
  }
}
