package io.github.oncelog.client;

import java.time.Duration;

/** The settings of a {@link Producer}. */
public final class ProducerConfig extends ClientConfig<ProducerConfig> {
  private String producerName;
  private ProducerIdentity resumeFrom;
  private boolean enableIdempotence = true;
  private Duration linger = Duration.ofMillis(5);
  private int batchSize = 1 << 20;
  private long bufferMemory = 64L << 20;
  private Duration maxBlock = Duration.ofMinutes(1);
  private Compression compression = Compression.NONE;
  private Integer compressionLevel;
  private Duration deliveryTimeout = Duration.ofMinutes(2);
  private int maxInFlight = 5;
  private Partitioner partitioner;

  /** A stable name, or null: a restart with the same name fences the instance before it. */
  public String producerName() {
    return producerName;
  }

  /** Sets {@link #producerName()}. */
  public ProducerConfig producerName(String producerName) {
    this.producerName = producerName;
    return this;
  }

  /** A producer id to start with instead of a leased one, or null. */
  public ProducerIdentity resumeFrom() {
    return resumeFrom;
  }

  /** Sets {@link #resumeFrom()}. */
  public ProducerConfig resumeFrom(ProducerIdentity resumeFrom) {
    this.resumeFrom = resumeFrom;
    return this;
  }

  /** Makes retries harmless. Without it a retry may store a record again. */
  public boolean enableIdempotence() {
    return enableIdempotence;
  }

  /** Sets {@link #enableIdempotence()}. */
  public ProducerConfig enableIdempotence(boolean enableIdempotence) {
    this.enableIdempotence = enableIdempotence;
    return this;
  }

  /** How long a batch that is not full waits for more records. */
  public Duration linger() {
    return linger;
  }

  /** Sets {@link #linger()}. */
  public ProducerConfig linger(Duration linger) {
    this.linger = linger;
    return this;
  }

  /** Closes a batch when its payload, before compression, has this many bytes. */
  public int batchSize() {
    return batchSize;
  }

  /** Sets {@link #batchSize()}. */
  public ProducerConfig batchSize(int batchSize) {
    this.batchSize = batchSize;
    return this;
  }

  /** Bounds the records that wait in this process, sent and not yet acknowledged included. */
  public long bufferMemory() {
    return bufferMemory;
  }

  /** Sets {@link #bufferMemory()}. */
  public ProducerConfig bufferMemory(long bufferMemory) {
    this.bufferMemory = bufferMemory;
    return this;
  }

  /** How long a send may wait for room in the buffer or for a topic's metadata. */
  public Duration maxBlock() {
    return maxBlock;
  }

  /** Sets {@link #maxBlock()}. */
  public ProducerConfig maxBlock(Duration maxBlock) {
    this.maxBlock = maxBlock;
    return this;
  }

  /** Is applied to whole batches. */
  public Compression compression() {
    return compression;
  }

  /** Sets {@link #compression()}. */
  public ProducerConfig compression(Compression compression) {
    this.compression = compression;
    return this;
  }

  /** Of the codec; null: its default. */
  public Integer compressionLevel() {
    return compressionLevel;
  }

  /** Sets {@link #compressionLevel()}. */
  public ProducerConfig compressionLevel(Integer compressionLevel) {
    this.compressionLevel = compressionLevel;
    return this;
  }

  /** After how long a record without an acknowledgement is given up. */
  public Duration deliveryTimeout() {
    return deliveryTimeout;
  }

  /** Sets {@link #deliveryTimeout()}. */
  public ProducerConfig deliveryTimeout(Duration deliveryTimeout) {
    this.deliveryTimeout = deliveryTimeout;
    return this;
  }

  /**
   * How many batches of one partition are on their way at the same time. Up to 5 the cluster knows
   * the offset of a repeated batch without looking it up.
   */
  public int maxInFlight() {
    return maxInFlight;
  }

  /** Sets {@link #maxInFlight()}. */
  public ProducerConfig maxInFlight(int maxInFlight) {
    this.maxInFlight = maxInFlight;
    return this;
  }

  /**
   * Places messages that name no partition; null: by key as Kafka does, and without a key on one
   * partition until its batch is closed.
   */
  public Partitioner partitioner() {
    return partitioner;
  }

  /** Sets {@link #partitioner()}. */
  public ProducerConfig partitioner(Partitioner partitioner) {
    this.partitioner = partitioner;
    return this;
  }

  /** The defaults, for the nodes of the environment; see {@link #bootstrapServers()}. */
  public ProducerConfig() {}

  /** The defaults, for nodes as "host:port,...". */
  public ProducerConfig(String servers) {
    super(servers);
  }

  ProducerConfig(ProducerConfig other) {
    super(other);
    producerName = other.producerName;
    resumeFrom = other.resumeFrom;
    enableIdempotence = other.enableIdempotence;
    linger = other.linger;
    batchSize = other.batchSize;
    bufferMemory = other.bufferMemory;
    maxBlock = other.maxBlock;
    compression = other.compression;
    compressionLevel = other.compressionLevel;
    deliveryTimeout = other.deliveryTimeout;
    maxInFlight = other.maxInFlight;
    partitioner = other.partitioner;
  }

  @Override
  ProducerConfig self() {
    return this;
  }

  @Override
  void check() {
    super.check();
    Limits.span("linger", linger, 0);
    Limits.number("batchSize", batchSize, Columns.BATCH_OVERHEAD, Payload.MAX_BYTES);
    Limits.number("bufferMemory", bufferMemory, 1, Long.MAX_VALUE);
    Limits.span("maxBlock", maxBlock, 0);
    Limits.span("deliveryTimeout", deliveryTimeout, 1);
    Limits.number("maxInFlight", maxInFlight, 1, 1000);
    if (compressionLevel != null) {
      Limits.number("compressionLevel", compressionLevel, -131072, 22);
      if (compression == Compression.NONE) {
        throw Limits.bad("compressionLevel=%d contradicts compression=none", compressionLevel);
      }
    }
    if (batchSize > bufferMemory) {
      throw Limits.bad("batchSize=%d does not fit into bufferMemory=%d", batchSize, bufferMemory);
    }
    if (deliveryTimeout.compareTo(linger.plus(requestTimeout())) < 0) {
      throw Limits.bad(
          "deliveryTimeout=%s is below linger=%s + requestTimeout=%s: a record would be given up"
              + " while it waits for its first answer",
          deliveryTimeout, linger, requestTimeout());
    }
    if (producerName != null) {
      Limits.name("producerName", producerName);
      if (!enableIdempotence) {
        throw Limits.bad("producerName=%s contradicts enableIdempotence=false", producerName);
      }
    }
    if (resumeFrom != null) {
      checkInitial();
    }
  }

  private void checkInitial() {
    if (!enableIdempotence) {
      throw Limits.bad("resumeFrom contradicts enableIdempotence=false");
    }
    if (producerName != null) {
      throw Limits.bad("resumeFrom contradicts producerName: a name has its own producer id");
    }
    Limits.number("resumeFrom.producerId", resumeFrom.producerId(), 1, Long.MAX_VALUE);
    Limits.number("resumeFrom.epoch", resumeFrom.epoch(), 0, Integer.MAX_VALUE);
    resumeFrom
        .nextSequences()
        .forEach(
            (tp, sequence) ->
                Limits.number("resumeFrom.nextSequences[" + tp + "]", sequence, 0, Long.MAX_VALUE));
  }
}
