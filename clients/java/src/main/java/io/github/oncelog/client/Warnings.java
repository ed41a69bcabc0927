package io.github.oncelog.client;

/** Events that a client tells the program beside its errors: to the logger of this package. */
final class Warnings {
  private static final System.Logger LOG = System.getLogger("io.github.oncelog.client");

  private Warnings() {}

  static void warn(String text) {
    LOG.log(System.Logger.Level.WARNING, text);
  }
}
