package io.github.oncelog.client;

/** Where to start without a position, or go on when it is gone. */
public enum OffsetReset {
  /** The first record that is kept. */
  EARLIEST,
  /** Behind the last one. */
  LATEST,
  /** Fail with {@link ErrorKind#OFFSET_OUT_OF_RANGE} instead. */
  NONE
}
