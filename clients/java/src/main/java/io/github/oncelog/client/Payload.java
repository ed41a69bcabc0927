package io.github.oncelog.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A batch's payload, read: columns of which all is checked. docs/protocol.md has the layout. */
final class Payload {
  static final int MAGIC = 'O' | 'L' << 8 | 'B' << 16 | '1' << 24;
  static final int PREAMBLE_BYTES = 32;
  static final int MAX_BYTES = 64 << 20;
  static final int VALUE_VALIDITY = 1;
  static final int KEYS = 2;
  static final int KEY_VALIDITY = 4;
  static final int HEADERS = 8;
  static final int HEADER_VALUE_VALIDITY = 16;
  private static final int ALL_FLAGS = 31;

  /** Where a column's buffers begin; {@code valid} is -1 if nothing is null. */
  private record Column(byte[] payload, int valid, int ends, int data) {
    boolean isNull(int row) {
      return valid >= 0 && (payload[valid + row / 8] >> row % 8 & 1) == 0;
    }

    byte[] at(int row) {
      if (isNull(row)) {
        return null;
      }
      int from = Bytes.getInt(payload, ends + 4 * row);
      int to = Bytes.getInt(payload, ends + 4 * row + 4);
      return Arrays.copyOfRange(payload, data + from, data + to);
    }
  }

  private final byte[] payload;
  private int at = PREAMBLE_BYTES;
  private final Column values;
  private Column keys;
  private final int timestamps;
  private int headerEnds = -1;
  private Column headerKeys;
  private Column headerValues;

  /** Refuses all but exactly a payload of {@code count} records. */
  Payload(byte[] payload, int count) {
    this.payload = payload;
    if (payload.length > MAX_BYTES) {
      throw damaged("%d bytes are over the limit %d", payload.length, MAX_BYTES);
    }
    if (payload.length < PREAMBLE_BYTES || Bytes.getInt(payload, 0) != MAGIC) {
      throw damaged("the payload does not begin with a preamble");
    }
    int[] numbers = new int[7];
    for (int i = 0; i < numbers.length; i++) {
      numbers[i] = Bytes.getInt(payload, 4 + 4 * i);
      if (numbers[i] < 0 || numbers[i] > MAX_BYTES) {
        throw damaged("the preamble's numbers are over the limit %d", MAX_BYTES);
      }
    }
    checkPreamble(numbers, count);
    int flags = numbers[0];
    values = column("value", count, numbers[3], (flags & VALUE_VALIDITY) != 0);
    if ((flags & KEYS) != 0) {
      keys = column("key", count, numbers[4], (flags & KEY_VALIDITY) != 0);
    }
    timestamps = take(8L * count);
    if ((flags & HEADERS) != 0) {
      int headers = numbers[2];
      headerEnds = offsets("header", count, headers);
      headerKeys = column("header key", headers, numbers[5], false);
      headerValues =
          column("header value", headers, numbers[6], (flags & HEADER_VALUE_VALIDITY) != 0);
      for (int i = 0; i < headers; i++) {
        headerName(i);
      }
    }
    if (at != payload.length) {
      throw damaged(
          "the payload has %d bytes more than its preamble asks for", payload.length - at);
    }
  }

  private static void checkPreamble(int[] numbers, int count) {
    int flags = numbers[0];
    if ((flags & ~ALL_FLAGS) != 0) {
      throw damaged("unknown flags 0x%x", flags);
    }
    if (numbers[1] == 0) {
      throw damaged("the payload holds no records");
    }
    if (numbers[1] != count) {
      throw damaged("the payload holds %d records, its header says %d", numbers[1], count);
    }
    if ((flags & KEYS) == 0 && (numbers[4] > 0 || (flags & KEY_VALIDITY) != 0)) {
      throw damaged("keys without the flag for keys");
    }
    boolean anyHeader = numbers[2] > 0 || numbers[5] > 0 || numbers[6] > 0;
    if ((flags & HEADERS) == 0 && (anyHeader || (flags & HEADER_VALUE_VALIDITY) != 0)) {
      throw damaged("headers without the flag for headers");
    }
  }

  private static OncelogException damaged(String format, Object... args) {
    return new OncelogException(ErrorKind.INVALID_BATCH, format, args);
  }

  /** Where the next buffer of so many bytes is; goes on behind its padding. */
  private int take(long size) {
    long end = at + (size + 7 & ~7L);
    if (end > payload.length) {
      throw damaged("the payload is shorter than its preamble asks for");
    }
    int begin = at;
    at = (int) end;
    return begin;
  }

  private Column column(String name, int rows, int size, boolean withNulls) {
    int valid = withNulls ? take((rows + 7) / 8) : -1;
    int ends = offsets(name, rows, size);
    return new Column(payload, valid, ends, take(size));
  }

  /** Where n + 1 offsets are, which must rise from 0 to end. */
  private int offsets(String name, int rows, int end) {
    int begin = take(4L * (rows + 1));
    int before = 0;
    for (int row = 0; row <= rows; row++) {
      int offset = Bytes.getInt(payload, begin + 4 * row);
      if (offset < before || row == 0 && offset != 0) {
        throw damaged("%s offsets do not rise from 0 to %d", name, end);
      }
      before = offset;
    }
    if (before != end) {
      throw damaged("%s offsets do not rise from 0 to %d", name, end);
    }
    return begin;
  }

  private String headerName(int index) {
    try {
      // A new decoder reports bytes that are not UTF-8; the string constructor replaces it.
      return StandardCharsets.UTF_8
          .newDecoder()
          .decode(ByteBuffer.wrap(headerKeys.at(index)))
          .toString();
    } catch (CharacterCodingException e) {
      throw damaged("a header key is not UTF-8");
    }
  }

  /** Whether compaction has removed the record, in a batch that it made. */
  boolean isBlank(int row) {
    return values.isNull(row) && (keys == null || keys.isNull(row));
  }

  StoredRecord record(TopicPartition tp, long offset, int row) {
    return new StoredRecord(
        tp.topic(),
        tp.partition(),
        offset,
        Bytes.getLong(payload, timestamps + 8 * row),
        values.at(row),
        keys == null ? null : keys.at(row),
        headers(row));
  }

  private List<Header> headers(int row) {
    if (headerEnds < 0) {
      return List.of();
    }
    int from = Bytes.getInt(payload, headerEnds + 4 * row);
    int to = Bytes.getInt(payload, headerEnds + 4 * row + 4);
    List<Header> headers = new ArrayList<>(to - from);
    for (int i = from; i < to; i++) {
      headers.add(new Header(headerName(i), headerValues.at(i)));
    }
    return headers;
  }
}
