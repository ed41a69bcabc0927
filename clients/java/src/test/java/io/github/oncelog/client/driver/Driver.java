package io.github.oncelog.client.driver;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.oncelog.client.Admin;
import io.github.oncelog.client.AdminConfig;
import io.github.oncelog.client.CommittedOffset;
import io.github.oncelog.client.CommittedTransaction;
import io.github.oncelog.client.Consumer;
import io.github.oncelog.client.ConsumerConfig;
import io.github.oncelog.client.Delivery;
import io.github.oncelog.client.ErrorKind;
import io.github.oncelog.client.Header;
import io.github.oncelog.client.Membership;
import io.github.oncelog.client.Message;
import io.github.oncelog.client.OffsetCommit;
import io.github.oncelog.client.OncelogException;
import io.github.oncelog.client.Producer;
import io.github.oncelog.client.RecordMetadata;
import io.github.oncelog.client.ResolvedSequence;
import io.github.oncelog.client.SendOptions;
import io.github.oncelog.client.StoredRecord;
import io.github.oncelog.client.TopicPartition;
import io.github.oncelog.client.Transaction;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/**
 * Lets the conformance kit drive this client: commands come as JSON lines on standard input,
 * answers go to standard output. conformance/DRIVER.md describes them.
 */
public final class Driver {
  private static final Gson GSON = new GsonBuilder().serializeNulls().create();
  private static final JsonObject NOTHING = new JsonObject();
  private static final HexFormat HEX = HexFormat.of();
  private static final List<String> FEATURES =
      List.of(
          "zstd",
          "lz4",
          "no_idempotence",
          "send_batch",
          "names",
          "resume_from",
          "own_sequences",
          "expected_offset",
          "resolve",
          "read",
          "any_replica",
          "rack",
          "offsets",
          "admin",
          "tls",
          "tokens",
          "transactions",
          "members",
          "cancel",
          "flush_at_exit",
          "warnings");

  /** A producer, and its sent records, by tag. */
  private static final class Sending {
    final Producer producer;
    final Map<String, Delivery> sent = new HashMap<>();
    Transaction transaction; // the last one that was begun

    Sending(Producer producer) {
      this.producer = producer;
    }
  }

  /** Where the client's warnings go, where the application says nothing else. */
  private static final Logger LOGGER = Logger.getLogger("io.github.oncelog.client");

  private final List<String> warnings = Collections.synchronizedList(new ArrayList<>());
  private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
  private final Map<String, Sending> producers = new HashMap<>();
  private final Map<String, Consumer> consumers = new HashMap<>();
  private final Map<String, Admin> admins = new HashMap<>();

  private Driver() {
    LOGGER.addHandler(
        new Handler() {
          @Override
          public void publish(LogRecord record) {
            if (record.getLevel().intValue() >= Level.WARNING.intValue()) {
              warnings.add(record.getMessage());
            }
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        });
  }

  /** Runs until standard input ends. */
  public static void main(String[] args) throws IOException {
    warmUp();
    Driver driver = new Driver();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Writer out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JsonObject command = JsonParser.parseString(line).getAsJsonObject();
      JsonObject reply = new JsonObject();
      reply.add("id", command.get("id"));
      try {
        reply.add("ok", driver.until(command));
      } catch (RuntimeException e) {
        reply.add("error", error(e));
      }
      out.write(GSON.toJson(reply));
      out.write('\n');
      out.flush();
      if (text(command, "verb").equals("exit")) {
        break;
      }
    }
    System.exit(0); // all that is still open
  }

  /**
   * On a busy machine a JVM needs seconds for the classes of a first call. The cases' times are
   * those of programs that run already.
   */
  private static void warmUp() {
    Duration soon = Duration.ofMillis(100);
    try (Admin admin = new Admin(new AdminConfig("127.0.0.1:1").requestTimeout(soon))) {
      admin.describeCluster();
    } catch (OncelogException e) {
      // nobody is there
    }
  }

  // --- errors ------------------------------------------------------------------------

  private static JsonObject error(RuntimeException e) {
    JsonObject error = new JsonObject();
    if (e instanceof OncelogException own) {
      error.addProperty("reason", own.kind().name());
      error.addProperty("retriable", own.isRetriable());
      error.add("details", details(own));
      if (own.outcome() != null) {
        error.addProperty("outcome", word(own.outcome()));
      }
    } else {
      error.addProperty("reason", e instanceof Fault fault ? fault.reason : "DRIVER_FAULT");
      error.addProperty("retriable", false);
    }
    error.addProperty("message", e.toString());
    return error;
  }

  private static JsonObject details(OncelogException e) {
    OncelogException.Details all = e.details();
    JsonObject some = new JsonObject();
    switch (e.kind()) {
      case NOT_LEADER -> {
        some.addProperty("leader_id", all.leaderId());
        some.addProperty("leader_address", all.leaderAddress());
      }
      case UNKNOWN_TOPIC_OR_PARTITION -> place(some, all);
      case INVALID_REQUEST -> {
        some.addProperty("field", all.field());
        some.addProperty("limit", all.limit());
      }
      case TOPIC_ALREADY_EXISTS -> some.addProperty("topic", all.topic());
      case PRODUCER_NAME_NOT_FOUND -> some.addProperty("producer_name", all.producerName());
      case OFFSET_OUT_OF_RANGE -> {
        place(some, all);
        some.addProperty("offset", all.offset());
        some.addProperty("log_start_offset", all.logStartOffset());
        some.addProperty("high_watermark", all.highWatermark());
      }
      case CORRUPT_LOG -> {
        place(some, all);
        some.addProperty("offset", all.offset());
      }
      case NOT_AUTHORIZED -> {
        some.addProperty("principal", all.principal());
        some.addProperty("operation", all.operation());
        some.addProperty("kind", all.kind());
        some.addProperty("name", all.name());
      }
      case OFFSET_MISMATCH -> some.addProperty("next_offset", all.nextOffset());
      case FENCED -> some.addProperty("current_epoch", all.currentEpoch());
      case OUT_OF_ORDER -> some.addProperty("last_sequence", all.lastSequence());
      default -> {}
    }
    RecordMetadata batch = e.batch();
    if (batch != null) {
      some.addProperty("topic", batch.topic());
      some.addProperty("partition", batch.partition());
      some.addProperty("producer_id", batch.producerId());
      some.addProperty("epoch", batch.epoch());
      some.addProperty("sequence", batch.lastSequence());
    }
    return some;
  }

  private static void place(JsonObject into, OncelogException.Details details) {
    into.addProperty("topic", details.topic());
    into.addProperty("partition", details.partition());
  }

  // --- JSON --------------------------------------------------------------------------

  static String word(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  static boolean has(JsonObject command, String name) {
    return command.has(name) && !command.get(name).isJsonNull();
  }

  static String text(JsonObject command, String name) {
    return has(command, name) ? command.get(name).getAsString() : "";
  }

  static boolean flag(JsonObject command, String name) {
    return has(command, name) && command.get(name).getAsBoolean();
  }

  static long number(JsonObject command, String name, long none) {
    return has(command, name) ? command.get(name).getAsLong() : none;
  }

  private static byte[] bytes(JsonElement digits) {
    return digits == null || digits.isJsonNull() ? null : HEX.parseHex(digits.getAsString());
  }

  private static String digits(byte[] data) {
    return data == null ? null : HEX.formatHex(data);
  }

  static TopicPartition partition(JsonObject command) {
    return new TopicPartition(text(command, "topic"), (int) number(command, "partition", 0));
  }

  static List<String> strings(JsonElement array) {
    List<String> all = new ArrayList<>();
    array.getAsJsonArray().forEach(one -> all.add(one.getAsString()));
    return all;
  }

  /** The command's timeout, or a minute. */
  private static Duration limit(JsonObject command) {
    return Duration.ofMillis(number(command, "timeout_ms", 60_000));
  }

  private static JsonObject named(String name, JsonArray values) {
    JsonObject answer = new JsonObject();
    answer.add(name, values);
    return answer;
  }

  private static JsonArray pairs(List<TopicPartition> tps) {
    JsonArray pairs = new JsonArray();
    for (TopicPartition tp : tps) {
      JsonArray pair = new JsonArray();
      pair.add(tp.topic());
      pair.add(tp.partition());
      pairs.add(pair);
    }
    return pairs;
  }

  private static JsonObject offset(long offset) {
    JsonObject answer = new JsonObject();
    answer.addProperty("offset", offset);
    return answer;
  }

  /** Gives up where it is told: the thread that waits is interrupted. */
  private JsonObject until(JsonObject command) {
    if (!has(command, "give_up_ms")) {
      return carryOut(command);
    }
    Thread waiting = Thread.currentThread();
    ScheduledFuture<?> late =
        clock.schedule(waiting::interrupt, number(command, "give_up_ms", 0), TimeUnit.MILLISECONDS);
    try {
      return carryOut(command);
    } catch (CancellationException e) {
      throw new Fault("CANCELLED", "given up");
    } finally {
      late.cancel(false);
      Thread.interrupted();
    }
  }

  // --- verbs -------------------------------------------------------------------------

  private JsonObject carryOut(JsonObject command) {
    String handle = text(command, "handle");
    switch (text(command, "verb")) {
      case "hello":
        return hello();
      case "defaults":
        return Settings.defaults();
      case "reset":
        reset();
        return NOTHING;
      case "warnings":
        JsonObject said = new JsonObject();
        said.add("warnings", GSON.toJsonTree(List.copyOf(warnings)));
        return said;
      case "exit":
        return NOTHING;
      case "open_producer":
        Producer producer = new Producer(Settings.producer(command.getAsJsonObject("config")));
        producers.put(handle, new Sending(producer));
        return NOTHING;
      case "open_consumer":
        ConsumerConfig config = Settings.consumer(command.getAsJsonObject("config"));
        if (config.membership() == Membership.ASSIGNED) {
          config.rebalanceListener(new Told(text(command, "failing")));
        }
        consumers.put(handle, new Consumer(config));
        return NOTHING;
      case "open_admin":
        admins.put(handle, new Admin(Settings.admin(command.getAsJsonObject("config"))));
        return NOTHING;
      default:
        break;
    }
    if (producers.containsKey(handle)) {
      return produce(command, producers.get(handle));
    }
    if (consumers.containsKey(handle)) {
      return consume(command, consumers.get(handle));
    }
    if (admins.containsKey(handle)) {
      return manage(command, admins.get(handle));
    }
    throw Fault.driver("no handle " + handle);
  }

  private static JsonObject hello() {
    JsonObject answer = new JsonObject();
    answer.addProperty("client", "oncelog-java");
    answer.addProperty("version", "0.1.0");
    answer.addProperty("protocol", 1);
    answer.add("features", GSON.toJsonTree(FEATURES));
    return answer;
  }

  private void reset() {
    for (Sending one : producers.values()) {
      closeQuietly(one.producer, Duration.ZERO);
    }
    consumers.values().forEach(Consumer::close);
    admins.values().forEach(Admin::close);
    producers.clear();
    consumers.clear();
    admins.clear();
    warnings.clear();
  }

  private static void closeQuietly(Producer producer, Duration limit) {
    try {
      producer.close(limit);
    } catch (OncelogException e) {
      if (e.kind() != ErrorKind.UNDELIVERED_RECORDS) {
        throw e;
      }
    }
  }

  // --- producers ---------------------------------------------------------------------

  private JsonObject produce(JsonObject command, Sending one) {
    Producer producer = one.producer;
    JsonObject answer = new JsonObject();
    switch (text(command, "verb")) {
      case "send" ->
          one.sent.put(
              text(command, "tag"),
              producer.send(message(command, text(command, "topic")), options(command)));
      case "send_batch" -> {
        List<Message> messages = new ArrayList<>();
        for (JsonElement each : command.getAsJsonArray("records")) {
          messages.add(message(each.getAsJsonObject(), text(command, "topic")));
        }
        one.sent.put(
            text(command, "tag"),
            producer.sendBatch(text(command, "topic"), messages, options(command)));
      }
      case "await" -> answer.add("results", results(command, one));
      case "flush" -> answer.addProperty("settled", flush(producer, limit(command)));
      case "last_sequence" -> {
        TopicPartition tp = partition(command);
        answer.addProperty("last_sequence", producer.position(tp.topic(), tp.partition()));
      }
      case "resolve" -> {
        ResolvedSequence found = producer.resolve(one.sent.get(text(command, "tag")));
        answer.addProperty("resolution", word(found.resolution()));
        answer.addProperty("offset", found.offset());
      }
      case "begin" -> {
        Duration idle = Duration.ofMillis(number(command, "idle_timeout_ms", 0));
        Duration total = Duration.ofMillis(number(command, "total_timeout_ms", 0));
        one.transaction = producer.begin(idle, total);
        answer.addProperty("transaction_id", one.transaction.transactionId());
      }
      case "send_offsets" ->
          one.transaction.commitOffsets(consumers.get(text(command, "consumer")));
      case "commit_transaction" -> {
        CommittedTransaction done = one.transaction.commit();
        answer.addProperty("transaction_id", done.transactionId());
        answer.add("runs", runs(done));
      }
      case "abort_transaction" -> one.transaction.abort();
      case "close" -> closeQuietly(producer, limit(command));
      default -> throw new Fault("NOT_OFFERED", "no such verb");
    }
    return answer;
  }

  private static JsonArray runs(CommittedTransaction done) {
    JsonArray runs = new JsonArray();
    new TreeMap<>(done.runs())
        .forEach(
            (tp, run) -> {
              JsonObject one = new JsonObject();
              one.addProperty("topic", tp.topic());
              one.addProperty("partition", tp.partition());
              one.addProperty("base_offset", run.baseOffset());
              one.addProperty("record_count", run.recordCount());
              runs.add(one);
            });
    return runs;
  }

  private static Message message(JsonObject from, String topic) {
    List<Header> headers = new ArrayList<>();
    if (has(from, "headers")) {
      for (JsonElement each : from.getAsJsonArray("headers")) {
        JsonArray pair = each.getAsJsonArray();
        headers.add(new Header(pair.get(0).getAsString(), bytes(pair.get(1))));
      }
    }
    Long stamp = null;
    if (has(from, "timestamp_us")) {
      stamp = number(from, "timestamp_us", 0);
    }
    Message message =
        new Message(topic, bytes(from.get("value")), bytes(from.get("key")), headers, stamp);
    return has(from, "timestamp_ms")
        ? message.at(Instant.ofEpochMilli(number(from, "timestamp_ms", 0)))
        : message;
  }

  private static SendOptions options(JsonObject command) {
    SendOptions options = new SendOptions();
    if (has(command, "partition")) {
      options.partition(command.get("partition").getAsInt());
    }
    if (has(command, "sequence")) {
      options.sequence(command.get("sequence").getAsLong());
    }
    if (has(command, "sequences")) {
      JsonArray all = command.getAsJsonArray("sequences");
      long[] sequences = new long[all.size()];
      for (int i = 0; i < sequences.length; i++) {
        sequences[i] = all.get(i).getAsLong();
      }
      options.sequences(sequences);
    }
    if (has(command, "expected_offset")) {
      options.expectedOffset(command.get("expected_offset").getAsLong());
    }
    return options;
  }

  private static boolean flush(Producer producer, Duration limit) {
    try {
      producer.flush(limit);
      return true;
    } catch (OncelogException e) {
      if (e.kind() == ErrorKind.UNDELIVERED_RECORDS) {
        return true;
      }
      if (e.kind() == ErrorKind.REQUEST_TIMEOUT) {
        return false;
      }
      throw e;
    }
  }

  private static JsonObject results(JsonObject command, Sending one) {
    Collection<String> tags =
        has(command, "tags") ? strings(command.get("tags")) : one.sent.keySet();
    flush(one.producer, limit(command));
    JsonObject results = new JsonObject();
    for (String tag : tags) {
      Delivery delivery = one.sent.get(tag);
      if (delivery == null) {
        throw Fault.driver("no tag " + tag);
      }
      JsonObject result = new JsonObject();
      if (!delivery.isDone()) {
        result.addProperty("pending", true);
      } else {
        try {
          result.add("ok", metadata(delivery.get()));
        } catch (OncelogException e) {
          result.add("error", error(e));
        }
      }
      results.add(tag, result);
    }
    return results;
  }

  private static JsonObject metadata(RecordMetadata m) {
    JsonObject ok = new JsonObject();
    ok.addProperty("topic", m.topic());
    ok.addProperty("partition", m.partition());
    ok.addProperty("offset", m.offset());
    ok.addProperty("sequence", m.sequence());
    ok.addProperty("last_sequence", m.lastSequence());
    ok.addProperty("producer_id", m.producerId());
    ok.addProperty("epoch", m.epoch());
    ok.addProperty("duplicate", m.duplicate());
    return ok;
  }

  // --- consumers ---------------------------------------------------------------------

  private static JsonObject consume(JsonObject command, Consumer consumer) {
    switch (text(command, "verb")) {
      case "subscribe":
        consumer.subscribe(strings(command.get("topics")).toArray(new String[0]));
        return NOTHING;
      case "unsubscribe":
        consumer.unsubscribe();
        return NOTHING;
      case "subscription":
        JsonArray topics = new JsonArray();
        consumer.subscription().stream().sorted().forEach(topics::add);
        return named("topics", topics);
      case "assignment":
        return named("partitions", pairs(consumer.assignment()));
      case "pause":
        consumer.pause(partition(command));
        return NOTHING;
      case "resume":
        consumer.resume(partition(command));
        return NOTHING;
      case "paused":
        return named("partitions", pairs(consumer.paused()));
      case "assign":
        List<TopicPartition> tps = new ArrayList<>();
        for (JsonElement each : command.getAsJsonArray("partitions")) {
          JsonArray pair = each.getAsJsonArray();
          tps.add(new TopicPartition(pair.get(0).getAsString(), pair.get(1).getAsInt()));
        }
        consumer.assign(tps);
        return NOTHING;
      case "poll":
        return poll(command, consumer);
      case "seek":
        seek(command, consumer);
        return NOTHING;
      case "lag":
        JsonObject lag = new JsonObject();
        lag.addProperty("lag", consumer.lag(partition(command)));
        return lag;
      case "position":
        return offset(consumer.position(partition(command)));
      case "list_offset":
        return listOffset(command, consumer);
      case "commit":
        commit(command, consumer);
        return NOTHING;
      case "committed":
        return committed(consumer.committed(partition(command)));
      case "told":
        JsonObject answer = new JsonObject();
        answer.add("calls", GSON.toJsonTree(((Told) consumer.config().rebalanceListener()).calls));
        return answer;
      case "close":
        consumer.close();
        return NOTHING;
      case "abandon":
        consumer.abandon();
        return NOTHING;
      default:
        throw new Fault("NOT_OFFERED", "no such verb");
    }
  }

  private static JsonObject poll(JsonObject command, Consumer consumer) {
    int most = (int) number(command, "max_records", consumer.config().maxPollRecords());
    JsonArray records = new JsonArray();
    for (StoredRecord r : consumer.poll(limit(command), most)) {
      JsonObject record = new JsonObject();
      record.addProperty("topic", r.topic());
      record.addProperty("partition", r.partition());
      record.addProperty("offset", r.offset());
      record.addProperty("timestamp_us", r.timestampUs());
      record.addProperty("key", digits(r.key()));
      record.addProperty("value", digits(r.value()));
      JsonArray headers = new JsonArray();
      for (Header header : r.headers()) {
        JsonArray pair = new JsonArray();
        pair.add(header.key());
        pair.add(digits(header.value()));
        headers.add(pair);
      }
      record.add("headers", headers);
      records.add(record);
    }
    JsonObject answer = new JsonObject();
    answer.add("records", records);
    return answer;
  }

  private static void seek(JsonObject command, Consumer consumer) {
    TopicPartition tp = partition(command);
    switch (text(command, "offset")) {
      case "beginning" -> consumer.seekToBeginning(tp);
      case "end" -> consumer.seekToEnd(tp);
      default -> consumer.seek(tp, command.get("offset").getAsLong());
    }
  }

  private static JsonObject listOffset(JsonObject command, Consumer consumer) {
    TopicPartition tp = partition(command);
    Map<TopicPartition, Long> found =
        switch (text(command, "at")) {
          case "earliest" -> consumer.beginningOffsets(List.of(tp));
          case "latest" -> consumer.endOffsets(List.of(tp));
          default ->
              consumer.offsetsForTimes(
                  Map.of(tp, Instant.ofEpochMilli(command.get("at").getAsLong())));
        };
    return offset(found.get(tp));
  }

  private static void commit(JsonObject command, Consumer consumer) {
    if (!has(command, "offsets")) {
      consumer.commit();
      return;
    }
    Map<TopicPartition, OffsetCommit> offsets = new HashMap<>();
    for (JsonElement each : command.getAsJsonArray("offsets")) {
      JsonObject one = each.getAsJsonObject();
      offsets.put(
          partition(one),
          new OffsetCommit(
              number(one, "offset", 0),
              text(one, "metadata"),
              number(one, "producer_id", 0),
              (int) number(one, "epoch", 0),
              number(one, "sequence", 0)));
    }
    consumer.commit(offsets);
  }

  private static JsonObject committed(CommittedOffset found) {
    JsonObject answer = new JsonObject();
    if (found == null) {
      answer.add("offset", JsonNull.INSTANCE);
      return answer;
    }
    OffsetCommit commit = found.commit();
    answer.addProperty("offset", commit.offset());
    answer.addProperty("metadata", commit.metadata());
    answer.addProperty("producer_id", commit.producerId());
    answer.addProperty("epoch", commit.epoch());
    answer.addProperty("sequence", commit.sequence());
    return answer;
  }

  // --- admin -------------------------------------------------------------------------

  private static Long longOf(JsonObject command, String name) {
    return has(command, name) ? command.get(name).getAsLong() : null;
  }

  private static JsonObject manage(JsonObject command, Admin admin) {
    String topic = text(command, "topic");
    JsonObject answer = new JsonObject();
    switch (text(command, "verb")) {
      case "create_topic" -> {
        Integer maxBatchBytes =
            has(command, "max_batch_bytes") ? command.get("max_batch_bytes").getAsInt() : null;
        Double dirtyRatio =
            has(command, "min_cleanable_dirty_ratio")
                ? command.get("min_cleanable_dirty_ratio").getAsDouble()
                : null;
        var policy =
            has(command, "cleanup_policy")
                ? Admin.CleanupPolicy.valueOf(
                    text(command, "cleanup_policy").toUpperCase(Locale.ROOT))
                : null;
        admin.createTopic(
            topic,
            (int) number(command, "partitions", 0),
            (int) number(command, "replicas", 0),
            new Admin.TopicConfig(
                null,
                null,
                maxBatchBytes,
                null,
                null,
                policy,
                longOf(command, "min_compaction_lag_ms"),
                longOf(command, "max_compaction_lag_ms"),
                longOf(command, "delete_retention_ms"),
                dirtyRatio),
            Duration.ofMillis(number(command, "timeout_ms", 30_000)));
      }
      case "delete_topic" -> admin.deleteTopic(topic);
      case "describe_topic" -> {
        Admin.TopicInfo info = admin.describeTopics(topic).get(0);
        answer.addProperty("topic_id", info.topicId());
        Admin.TopicConfig config = info.config();
        answer.addProperty("max_batch_bytes", config.maxBatchBytes());
        answer.addProperty(
            "cleanup_policy", config.cleanupPolicy().name().toLowerCase(Locale.ROOT));
        answer.addProperty("min_compaction_lag_ms", config.minCompactionLagMs());
        answer.addProperty("max_compaction_lag_ms", config.maxCompactionLagMs());
        answer.addProperty("delete_retention_ms", config.deleteRetentionMs());
        answer.addProperty("min_cleanable_dirty_ratio", config.minCleanableDirtyRatio());
        JsonArray partitions = new JsonArray();
        for (Admin.PartitionInfo p : info.partitions()) {
          JsonObject one = new JsonObject();
          one.addProperty("partition", p.partition());
          one.addProperty("leader_id", p.leaderId());
          one.addProperty("term", p.term());
          partitions.add(one);
        }
        answer.add("partitions", partitions);
      }
      case "resize_topic" -> {
        Admin.Resize resize =
            new Admin.Resize((int) number(command, "partitions", 0), 0, flag(command, "dry_run"));
        Admin.Resized resized = admin.resizeTopic(topic, resize);
        answer.addProperty("partitions", resized.topic().partitions().size());
        answer.addProperty("moves", resized.count());
      }
      case "list_transactions" -> {
        JsonArray all = new JsonArray();
        admin
            .listTransactions(text(command, "producer_name"), Duration.ZERO, 0)
            .forEach(found -> all.add(transaction(found)));
        answer.add("transactions", all);
      }
      case "describe_transaction" -> {
        return transaction(admin.describeTransaction(command.get("transaction_id").getAsLong()));
      }
      case "end_transaction" -> admin.abortTransaction(command.get("transaction_id").getAsLong());
      case "fence_producer" -> {
        Admin.ProducerEpoch fenced = admin.fenceProducer(text(command, "producer_name"));
        answer.addProperty("producer_id", fenced.producerId());
        answer.addProperty("epoch", fenced.epoch());
      }
      case "close" -> admin.close();
      default -> {
        return Administration.carryOut(command, admin);
      }
    }
    return answer;
  }

  private static JsonObject transaction(Admin.TransactionInfo found) {
    JsonObject answer = new JsonObject();
    answer.addProperty("transaction_id", found.transactionId());
    answer.addProperty("state", found.state());
    answer.addProperty("reason", found.reason());
    answer.addProperty("producer_name", found.producerName());
    JsonArray partitions = new JsonArray();
    for (Admin.TransactionPart part : found.partitions()) {
      JsonArray one = new JsonArray();
      one.add(part.partition().topic());
      one.add(part.partition().partition());
      partitions.add(one);
    }
    answer.add("partitions", partitions);
    return answer;
  }
}
