package io.github.oncelog.client.driver;

/** An error that is none of the client's. */
final class Fault extends RuntimeException {
  private static final long serialVersionUID = 1;

  final String reason;

  Fault(String reason, String message) {
    super(message);
    this.reason = reason;
  }

  static Fault driver(String message) {
    return new Fault("DRIVER_FAULT", message);
  }
}
