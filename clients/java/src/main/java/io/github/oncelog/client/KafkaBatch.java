package io.github.oncelog.client;

import io.github.oncelog.client.proto.Codec;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.zip.GZIPInputStream;

/**
 * A record batch of Kafka's protocol (v2), as columns. It is stored from its byte 21 on: 40 bytes
 * of attributes, counts, timestamps and producer, big-endian, then the records, compressed
 * together. Lengths and deltas are zigzag varints.
 */
final class KafkaBatch {
  private static final int HEAD = 40;
  private static final int CODEC = 7;
  private static final byte[] XERIAL = {(byte) 0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
  private static final int XERIAL_HEAD = 16; // its magic, and two versions

  private KafkaBatch() {}

  /** The batch's records as a payload. */
  static byte[] columns(byte[] payload) {
    try {
      ByteBuffer head = ByteBuffer.wrap(payload);
      int codec = head.getShort() & CODEC;
      head.getInt(); // the last offset's delta
      long base = head.getLong();
      int count = head.getInt(HEAD - 4);
      byte[] data = unpacked(codec, Arrays.copyOfRange(payload, HEAD, payload.length));
      ByteBuffer all = ByteBuffer.wrap(data);
      Columns columns = new Columns(null);
      for (int number = 0; number < count; number++) {
        ByteBuffer one = ByteBuffer.wrap(take(all, varint(all)));
        record(one, columns, number, base);
      }
      if (all.hasRemaining()) {
        throw damaged("%d bytes follow its records", all.remaining());
      }
      return columns.encode();
    } catch (BufferUnderflowException | IndexOutOfBoundsException | IllegalArgumentException e) {
      throw damaged("it ends too early").because(e);
    }
  }

  private static OncelogException damaged(String format, Object... args) {
    return new OncelogException(
        ErrorKind.INVALID_BATCH, "Kafka batch: %s", String.format(format, args));
  }

  private static void record(ByteBuffer one, Columns columns, int number, long base) {
    one.get(); // its attributes
    long time = base + varint(one);
    long delta = varint(one);
    if (delta != number) {
      throw damaged("record %d says it is number %d", number, delta);
    }
    byte[] key = bytes(one);
    byte[] value = bytes(one);
    long count = varint(one);
    if (count < 0 || count > one.remaining()) {
      throw damaged("record %d has %d headers", number, count);
    }
    List<Header> headers = new ArrayList<>();
    for (long i = 0; i < count; i++) {
      String name = name(bytes(one));
      headers.add(new Header(name, bytes(one)));
    }
    if (one.hasRemaining()) {
      throw damaged("record %d is not as long as it says", number);
    }
    columns.add(value, key, headers, time * 1000);
  }

  private static String name(byte[] key) {
    if (key == null) {
      return "";
    }
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(key)).toString();
    } catch (CharacterCodingException e) {
      throw damaged("a header key is not UTF-8").because(e);
    }
  }

  private static long varint(ByteBuffer from) {
    long number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      byte next = from.get();
      number |= (long) (next & 0x7f) << shift;
      if (next >= 0) {
        return number >>> 1 ^ -(number & 1);
      }
    }
    throw damaged("a number has more than 64 bits");
  }

  private static byte[] bytes(ByteBuffer from) {
    long length = varint(from);
    return length < 0 ? null : take(from, length);
  }

  private static byte[] take(ByteBuffer from, long length) {
    if (length < 0 || length > from.remaining()) {
      throw damaged("a record ends too early");
    }
    byte[] taken = new byte[(int) length];
    from.get(taken);
    return taken;
  }

  // --- codecs ------------------------------------------------------------------------

  private static byte[] unpacked(int codec, byte[] data) {
    return switch (codec) {
      case 0 -> data;
      case 1 -> gunzip(data);
      case 2 -> unsnappy(data);
      case 3 -> Codecs.decompress(Codec.CODEC_LZ4, data);
      case 4 -> Codecs.decompress(Codec.CODEC_ZSTD, data);
      default -> throw damaged("its compression type %d is unknown", codec);
    };
  }

  private static byte[] gunzip(byte[] data) {
    try (InputStream in = new GZIPInputStream(new ByteArrayInputStream(data))) {
      return Codecs.bounded("gzip", in, 0);
    } catch (EOFException e) {
      throw damaged("its gzip records end too early").because(e);
    } catch (IOException e) {
      throw damaged("its gzip records are damaged: %s", e.getMessage()).because(e);
    }
  }

  /** Blocks as Java's client frames them (xerial), or the one raw block of others. */
  static byte[] unsnappy(byte[] data) {
    if (!Arrays.equals(XERIAL, Arrays.copyOf(data, XERIAL.length))) {
      return snappyBlock(data, Payload.MAX_BYTES);
    }
    ByteBuffer all = ByteBuffer.wrap(data).position(XERIAL_HEAD);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    while (all.hasRemaining()) {
      out.writeBytes(snappyBlock(take(all, all.getInt()), Payload.MAX_BYTES - out.size()));
    }
    return out.toByteArray();
  }

  /** A raw block (github.com/google/snappy, format_description.txt). */
  private static byte[] snappyBlock(byte[] block, int room) {
    ByteBuffer in = ByteBuffer.wrap(block);
    long size = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      byte next = in.get();
      size |= (long) (next & 0x7f) << shift;
      if (next >= 0) {
        break;
      }
    }
    if (size > room) {
      throw damaged("it unpacks to more than the limit %d", Payload.MAX_BYTES);
    }
    byte[] out = new byte[(int) size];
    int end = 0;
    while (in.hasRemaining()) {
      int tag = in.get() & 0xff;
      if ((tag & 3) == 0) {
        long length = (tag >> 2 > 59 ? number(in, (tag >> 2) - 59) : tag >> 2) + 1;
        if (length > in.remaining() || length > out.length - end) {
          throw damaged("its snappy records are not the %d bytes that they say", size);
        }
        in.get(out, end, (int) length);
        end += (int) length;
        continue;
      }
      boolean near = (tag & 3) == 1;
      int length = near ? (tag >> 2 & 7) + 4 : (tag >> 2) + 1;
      long back = near ? (tag >> 5 << 8) + (in.get() & 0xff) : number(in, (tag & 3) == 2 ? 2 : 4);
      if (back == 0 || back > end || length > out.length - end) {
        throw damaged("its snappy records are not the %d bytes that they say", size);
      }
      for (int i = 0; i < length; i++, end++) { // byte by byte: it may repeat itself
        out[end] = out[end - (int) back];
      }
    }
    if (end != size) {
      throw damaged("its snappy records are not the %d bytes that they say", size);
    }
    return out;
  }

  private static long number(ByteBuffer from, int width) {
    long number = 0;
    for (int i = 0; i < width; i++) {
      number |= (from.get() & 0xffL) << 8 * i;
    }
    return number;
  }
}
