package io.github.oncelog.client;

/** Is called when the outcome of a record is known. */
@FunctionalInterface
public interface DeliveryCallback {
  /** One of the two is null. */
  void onDelivery(RecordMetadata metadata, OncelogException error);
}
