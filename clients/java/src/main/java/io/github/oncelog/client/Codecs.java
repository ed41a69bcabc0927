package io.github.oncelog.client;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdInputStream;
import io.github.oncelog.client.proto.Codec;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.zip.CRC32C;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4FrameInputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;
import net.jpountz.lz4.LZ4FrameOutputStream.BLOCKSIZE;
import net.jpountz.lz4.LZ4FrameOutputStream.FLG.Bits;
import net.jpountz.xxhash.XXHashFactory;

/** Codecs and checksum of payloads. */
final class Codecs {
  private Codecs() {}

  /** CRC-32C. */
  static int checksum(byte[] payload) {
    CRC32C crc = new CRC32C();
    crc.update(payload);
    return (int) crc.getValue();
  }

  /** Level: of zstd's own scale, 1 to 22, or of lz4's, 0 to 17; null: the default. */
  static byte[] compress(Compression compression, Integer level, byte[] payload) {
    switch (compression) {
      case ZSTD:
        return Zstd.compress(payload, level == null ? Zstd.defaultCompressionLevel() : level);
      case LZ4:
        return lz4(payload, level);
      default:
        return payload;
    }
  }

  private static byte[] lz4(byte[] payload, Integer level) {
    LZ4Factory factory = LZ4Factory.fastestInstance();
    LZ4Compressor compressor =
        level == null || level <= 0
            ? factory.fastCompressor()
            : factory.highCompressor(Math.min(level, 17));
    ByteArrayOutputStream out = new ByteArrayOutputStream(payload.length / 2 + 64);
    try (LZ4FrameOutputStream frame =
        new LZ4FrameOutputStream(
            out,
            BLOCKSIZE.SIZE_4MB,
            payload.length,
            compressor,
            XXHashFactory.fastestInstance().hash32(),
            Bits.BLOCK_INDEPENDENCE,
            Bits.CONTENT_SIZE)) {
      frame.write(payload);
    } catch (IOException e) {
      throw new IllegalStateException("memory cannot fail", e);
    }
    return out.toByteArray();
  }

  /**
   * The payload; never allocates much more than the limit of a payload, even if a frame claims
   * more.
   */
  static byte[] decompress(Codec codec, byte[] data) {
    switch (codec) {
      case CODEC_NONE:
        return data;
      case CODEC_ZSTD:
        return unzstd(data);
      case CODEC_LZ4:
        return unlz4(data);
      case CODEC_KAFKA_V2:
        return KafkaBatch.columns(data);
      default:
        throw new OncelogException(ErrorKind.INVALID_BATCH, "unknown codec %s", codec);
    }
  }

  private static byte[] unzstd(byte[] data) {
    try (InputStream in = new ZstdInputStream(new ByteArrayInputStream(data))) {
      return bounded("zstd", in, Zstd.getFrameContentSize(data));
    } catch (IOException e) {
      throw new OncelogException(
              ErrorKind.INVALID_BATCH, "zstd payload is damaged: %s", e.getMessage())
          .because(e);
    }
  }

  private static byte[] unlz4(byte[] data) {
    ByteArrayInputStream source = new ByteArrayInputStream(data);
    try (LZ4FrameInputStream in = new LZ4FrameInputStream(source, true)) {
      byte[] payload =
          bounded("lz4", in, in.isExpectedContentSizeDefined() ? in.getExpectedContentSize() : 0);
      if (source.available() > 0) {
        throw new OncelogException(ErrorKind.INVALID_BATCH, "lz4 payload is not exactly one frame");
      }
      return payload;
    } catch (IOException | RuntimeException e) {
      if (e instanceof OncelogException own) {
        throw own;
      }
      throw new OncelogException(
              ErrorKind.INVALID_BATCH, "lz4 payload is damaged: %s", e.getMessage())
          .because(e);
    }
  }

  /** All that comes, refused above the limit of a payload. The expected size is a hint only. */
  static byte[] bounded(String codec, InputStream in, long expected) throws IOException {
    byte[] out = new byte[(int) Math.max(4096, Math.min(expected, Payload.MAX_BYTES) + 1)];
    int length = 0;
    for (int read; (read = in.read(out, length, out.length - length)) >= 0; ) {
      length += read;
      if (length > Payload.MAX_BYTES) {
        throw new OncelogException(
            ErrorKind.INVALID_BATCH,
            "%s payload unpacks to more than the limit %d",
            codec,
            Payload.MAX_BYTES);
      }
      if (length == out.length) {
        out = java.util.Arrays.copyOf(out, Math.min(out.length * 2, Payload.MAX_BYTES + 1));
      }
    }
    return java.util.Arrays.copyOf(out, length);
  }
}
