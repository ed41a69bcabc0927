package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.oncelog.client.proto.Codec;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** The payload against tests/vectors, which another writer has made. */
class PayloadTest {
  private static final Path VECTORS = Path.of("../../tests/vectors");
  private static final TopicPartition TP = new TopicPartition("t", 0);

  static Stream<String> vectors() throws IOException {
    try (Stream<Path> files = Files.list(VECTORS)) {
      return files
          .map(path -> path.getFileName().toString())
          .filter(name -> name.endsWith(".json"))
          .map(name -> name.substring(0, name.length() - 5))
          .sorted()
          .toList()
          .stream();
    }
  }

  private static String read(String name) {
    try {
      return Files.readString(VECTORS.resolve(name));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static byte[] bytes(String name) {
    return HexFormat.of().parseHex(read(name).replaceAll("\\s", ""));
  }

  private static byte[] bytes(JsonElement digits) {
    return digits.isJsonNull() ? null : HexFormat.of().parseHex(digits.getAsString());
  }

  private static JsonArray records(String vector) {
    return JsonParser.parseString(read(vector + ".json"))
        .getAsJsonObject()
        .getAsJsonArray("records");
  }

  private static Columns columns(JsonArray records) {
    Columns columns = new Columns(null);
    for (JsonElement each : records) {
      JsonObject record = each.getAsJsonObject();
      List<Header> headers = new ArrayList<>();
      for (JsonElement pair : record.getAsJsonArray("headers")) {
        JsonArray both = pair.getAsJsonArray();
        headers.add(new Header(both.get(0).getAsString(), bytes(both.get(1))));
      }
      columns.add(
          bytes(record.get("value")),
          bytes(record.get("key")),
          headers,
          record.get("timestamp_us").getAsLong());
    }
    return columns;
  }

  private static void assertSame(JsonArray records, Payload payload) {
    for (int row = 0; row < records.size(); row++) {
      JsonObject wanted = records.get(row).getAsJsonObject();
      StoredRecord found = payload.record(TP, row, row);
      assertArrayEquals(bytes(wanted.get("value")), found.value());
      assertArrayEquals(bytes(wanted.get("key")), found.key());
      assertEquals(wanted.get("timestamp_us").getAsLong(), found.timestampUs());
      JsonArray headers = wanted.getAsJsonArray("headers");
      assertEquals(headers.size(), found.headers().size());
      for (int i = 0; i < headers.size(); i++) {
        JsonArray pair = headers.get(i).getAsJsonArray();
        assertEquals(pair.get(0).getAsString(), found.headers().get(i).key());
        assertArrayEquals(bytes(pair.get(1)), found.headers().get(i).value());
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void writesAndReadsEachVector(String vector) {
    JsonArray records = records(vector);
    byte[] payload = columns(records).encode();
    assertArrayEquals(bytes(vector + ".hex"), payload);
    JsonObject about = JsonParser.parseString(read(vector + ".json")).getAsJsonObject();
    assertEquals(
        about.get("crc32c").getAsString(), String.format("%08x", Codecs.checksum(payload)));
    assertSame(records, new Payload(payload, records.size()));
  }

  @Test
  void readsWhatOthersHaveCompressed() {
    String name = "06-nine-records";
    byte[] plain = bytes(name + ".hex");
    assertArrayEquals(plain, Codecs.decompress(Codec.CODEC_LZ4, bytes(name + ".lz4.hex")));
    assertArrayEquals(plain, Codecs.decompress(Codec.CODEC_ZSTD, bytes(name + ".zstd.hex")));
    assertArrayEquals(plain, Codecs.decompress(Codec.CODEC_ZSTD, bytes(name + ".zstd-stream.hex")));
  }

  @ParameterizedTest
  @EnumSource(Compression.class)
  void whatIsCompressedComesBack(Compression compression) {
    byte[] payload = "over and over again ".repeat(50_000).getBytes(StandardCharsets.UTF_8);
    for (Integer level : new Integer[] {null, 9}) {
      byte[] data = Codecs.compress(compression, level, payload);
      assertArrayEquals(payload, Codecs.decompress(compression.codec, data));
    }
  }

  @ParameterizedTest
  @EnumSource(value = Compression.class, names = "NONE", mode = EnumSource.Mode.EXCLUDE)
  void refusesDamageAndTooMuch(Compression compression) {
    byte[] large = Codecs.compress(compression, null, new byte[Payload.MAX_BYTES + 1]);
    assertInvalid(() -> Codecs.decompress(compression.codec, large));
    byte[] data = Codecs.compress(compression, null, new byte[100_000]);
    byte[] cut = java.util.Arrays.copyOf(data, data.length - 9);
    assertInvalid(() -> Codecs.decompress(compression.codec, cut));
  }

  @Test
  void refusesWhatIsNotExactlyAPayload() {
    for (JsonElement each :
        JsonParser.parseString(read("refused/payloads.json")).getAsJsonArray()) {
      byte[] payload = bytes(each.getAsJsonObject().get("payload"));
      int count = payload.length < 12 ? 1 : Math.max(1, Bytes.getInt(payload, 8));
      assertInvalid(() -> new Payload(payload, count));
    }
    byte[] one = bytes("01-one-value.hex");
    assertInvalid(() -> new Payload(one, 2));
  }

  private static void assertInvalid(org.junit.jupiter.api.function.Executable what) {
    OncelogException e = assertThrows(OncelogException.class, what);
    assertEquals(ErrorKind.INVALID_BATCH, e.kind());
  }

  @Test
  void placesKeysAsKafkaDoes() {
    assertEquals(-790332482, Murmur2.hash("foobar".getBytes(StandardCharsets.UTF_8)));
    assertEquals(0, Murmur2.partition("foobar".getBytes(StandardCharsets.UTF_8), 6));
  }
}
