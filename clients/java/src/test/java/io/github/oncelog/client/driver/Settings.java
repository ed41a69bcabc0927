package io.github.oncelog.client.driver;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import io.github.oncelog.client.AdminConfig;
import io.github.oncelog.client.ClientConfig;
import io.github.oncelog.client.Compression;
import io.github.oncelog.client.Consumer;
import io.github.oncelog.client.ConsumerConfig;
import io.github.oncelog.client.Membership;
import io.github.oncelog.client.OffsetReset;
import io.github.oncelog.client.Producer;
import io.github.oncelog.client.ProducerConfig;
import io.github.oncelog.client.ProducerIdentity;
import io.github.oncelog.client.TopicPartition;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The settings of all clients, by the names of conformance/DRIVER.md. */
final class Settings {
  private Settings() {}

  static ProducerConfig producer(JsonObject all) {
    ProducerConfig config = new ProducerConfig();
    each(
        all,
        (name, value) -> {
          switch (name) {
            case "producer_name" -> config.producerName(value.getAsString());
            case "resume_from" -> config.resumeFrom(identity(value.getAsJsonObject()));
            case "enable_idempotence" -> config.enableIdempotence(value.getAsBoolean());
            case "compression_type" -> config.compression(word(Compression.class, value));
            case "compression_level" -> config.compressionLevel(value.getAsInt());
            case "linger_ms" -> config.linger(ms(value));
            case "batch_size" -> config.batchSize(value.getAsInt());
            case "buffer_memory" -> config.bufferMemory(value.getAsLong());
            case "max_block_ms" -> config.maxBlock(ms(value));
            case "delivery_timeout_ms" -> config.deliveryTimeout(ms(value));
            case "max_in_flight" -> config.maxInFlight(value.getAsInt());
            default -> client(config, name, value);
          }
        });
    return config;
  }

  static ConsumerConfig consumer(JsonObject all) {
    ConsumerConfig config = new ConsumerConfig().membership(Membership.MANUAL);
    each(
        all,
        (name, value) -> {
          switch (name) {
            case "group_id" -> config.groupId(value.getAsString());
            case "membership" -> config.membership(word(Membership.class, value));
            case "group_instance_id" -> config.groupInstanceId(value.getAsString());
            case "enable_auto_commit" -> config.enableAutoCommit(value.getAsBoolean());
            case "session_timeout_ms" -> config.sessionTimeout(ms(value));
            case "revoke_timeout_ms" -> config.revokeTimeout(ms(value));
            case "processing_timeout_ms" -> config.processingTimeout(ms(value));
            case "auto_offset_reset" -> config.autoOffsetReset(word(OffsetReset.class, value));
            case "fetch_min_bytes" -> config.fetchMinBytes(value.getAsInt());
            case "fetch_max_wait_ms" -> config.fetchMaxWait(ms(value));
            case "fetch_max_bytes" -> config.fetchMaxBytes(value.getAsInt());
            case "max_partition_fetch_bytes" -> config.maxPartitionFetchBytes(value.getAsInt());
            case "max_poll_records" -> config.maxPollRecords(value.getAsInt());
            case "check_crcs" -> config.checkCrcs(value.getAsBoolean());
            case "any_replica" -> config.anyReplica(value.getAsBoolean());
            case "replica_node_id" -> config.replicaNodeId(value.getAsInt());
            case "rack" -> config.rack(value.getAsString());
            default -> client(config, name, value);
          }
        });
    return config;
  }

  static AdminConfig admin(JsonObject all) {
    AdminConfig config = new AdminConfig();
    each(all, (name, value) -> client(config, name, value));
    return config;
  }

  private interface Taker {
    void take(String name, JsonElement value);
  }

  /** A null has the client's default. */
  private static void each(JsonObject all, Taker taker) {
    for (Map.Entry<String, JsonElement> entry : all.entrySet()) {
      if (!entry.getValue().isJsonNull()) {
        taker.take(entry.getKey(), entry.getValue());
      }
    }
  }

  private static void client(ClientConfig<?> config, String name, JsonElement value) {
    switch (name) {
      case "bootstrap_servers" -> {
        List<String> servers = new ArrayList<>();
        value.getAsJsonArray().forEach(one -> servers.add(one.getAsString()));
        config.bootstrapServers(servers);
      }
      case "client_id" -> config.clientId(value.getAsString());
      case "request_timeout_ms" -> config.requestTimeout(ms(value));
      case "retry_backoff_ms" -> config.retryBackoff(ms(value));
      case "retry_backoff_max_ms" -> config.retryBackoffMax(ms(value));
      case "metadata_max_age_ms" -> config.metadataMaxAge(ms(value));
      case "tls" -> config.tls(value.getAsBoolean());
      case "tls_ca_file" -> config.tlsCaFile(Path.of(value.getAsString()));
      case "tls_cert_file" -> config.tlsCertFile(Path.of(value.getAsString()));
      case "tls_key_file" -> config.tlsKeyFile(Path.of(value.getAsString()));
      case "token_file" -> config.tokenFile(Path.of(value.getAsString()));
      case "token" -> config.token(value.getAsString());
      default -> throw new Fault("NOT_OFFERED", "no setting " + name);
    }
  }

  private static Duration ms(JsonElement value) {
    return Duration.ofMillis(value.getAsLong());
  }

  private static <E extends Enum<E>> E word(Class<E> type, JsonElement value) {
    return Enum.valueOf(type, value.getAsString().toUpperCase(Locale.ROOT));
  }

  private static ProducerIdentity identity(JsonObject initial) {
    Map<TopicPartition, Long> next = new HashMap<>();
    if (initial.has("next_sequences")) {
      for (JsonElement each : initial.getAsJsonArray("next_sequences")) {
        JsonObject one = each.getAsJsonObject();
        next.put(Driver.partition(one), one.get("sequence").getAsLong());
      }
    }
    String token = initial.has("lease_token") ? initial.get("lease_token").getAsString() : "";
    return new ProducerIdentity(
        initial.get("producer_id").getAsLong(),
        initial.has("epoch") ? initial.get("epoch").getAsInt() : 0,
        HexFormat.of().parseHex(token),
        next);
  }

  // --- defaults ----------------------------------------------------------------------

  static JsonObject defaults() {
    JsonObject all = new JsonObject();
    try (Producer producer = new Producer("localhost:1");
        Consumer consumer = new Consumer("localhost:1")) {
      all.add("producer", defaults(producer.config()));
      all.add("consumer", defaults(consumer.config()));
      all.add("member", member(consumer.config()));
    }
    return all;
  }

  private static JsonObject client(ClientConfig<?> config) {
    JsonObject all = new JsonObject();
    all.addProperty("request_timeout_ms", config.requestTimeout().toMillis());
    all.addProperty("retry_backoff_ms", config.retryBackoff().toMillis());
    all.addProperty("retry_backoff_max_ms", config.retryBackoffMax().toMillis());
    all.addProperty("metadata_max_age_ms", config.metadataMaxAge().toMillis());
    return all;
  }

  private static JsonObject defaults(ProducerConfig config) {
    JsonObject all = client(config);
    all.addProperty("producer_name", config.producerName());
    all.add("resume_from", JsonNull.INSTANCE);
    all.addProperty("enable_idempotence", config.enableIdempotence());
    all.addProperty("compression_type", Driver.word(config.compression()));
    all.addProperty("compression_level", config.compressionLevel());
    all.addProperty("linger_ms", config.linger().toMillis());
    all.addProperty("batch_size", config.batchSize());
    all.addProperty("buffer_memory", config.bufferMemory());
    all.addProperty("max_block_ms", config.maxBlock().toMillis());
    all.addProperty("delivery_timeout_ms", config.deliveryTimeout().toMillis());
    all.addProperty("max_in_flight", config.maxInFlight());
    return all;
  }

  private static JsonObject member(ConsumerConfig config) {
    JsonObject all = new JsonObject();
    all.addProperty("membership", Driver.word(config.membership()));
    all.addProperty("group_instance_id", config.groupInstanceId());
    all.addProperty("assignor", Driver.word(config.assignor()));
    all.addProperty("session_timeout_ms", config.sessionTimeout().toMillis());
    all.addProperty("revoke_timeout_ms", config.revokeTimeout().toMillis());
    all.addProperty("processing_timeout_ms", config.processingTimeout().toMillis());
    all.addProperty("enable_auto_commit", config.enableAutoCommit());
    all.addProperty("auto_commit_interval_ms", config.autoCommitInterval().toMillis());
    return all;
  }

  private static JsonObject defaults(ConsumerConfig config) {
    JsonObject all = client(config);
    all.addProperty("group_id", config.groupId());
    all.addProperty("auto_offset_reset", Driver.word(config.autoOffsetReset()));
    all.addProperty("fetch_min_bytes", config.fetchMinBytes());
    all.addProperty("fetch_max_wait_ms", config.fetchMaxWait().toMillis());
    all.addProperty("fetch_max_bytes", config.fetchMaxBytes());
    all.addProperty("max_partition_fetch_bytes", config.maxPartitionFetchBytes());
    all.addProperty("max_poll_records", config.maxPollRecords());
    all.addProperty("check_crcs", config.checkCrcs());
    all.addProperty("any_replica", config.anyReplica());
    all.addProperty("replica_node_id", config.replicaNodeId() == 0 ? null : config.replicaNodeId());
    all.addProperty("rack", config.rack());
    return all;
  }
}
