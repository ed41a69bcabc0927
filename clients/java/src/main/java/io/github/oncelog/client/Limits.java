package io.github.oncelog.client;

import java.time.Duration;
import java.util.regex.Pattern;

/** Refuses settings that are out of range. */
final class Limits {
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._:/@=+ -]+");
  private static final int MAX_NAME_CHARS = 249;

  private Limits() {}

  static OncelogException bad(String format, Object... args) {
    return new OncelogException(ErrorKind.INVALID_CONFIG, format, args);
  }

  static void span(String name, Duration value, long lowMs) {
    Duration high = Duration.ofMillis(Integer.MAX_VALUE);
    if (value.compareTo(Duration.ofMillis(lowMs)) < 0 || value.compareTo(high) > 0) {
      throw bad("%s must be from %d ms to %s, got %s", name, lowMs, high, value);
    }
  }

  static void number(String name, long value, long low, long high) {
    if (value < low || value > high) {
      throw bad("%s must be from %d to %d, got %d", name, low, high, value);
    }
  }

  static void name(String setting, String name) {
    int count = name.codePointCount(0, name.length());
    if (count > MAX_NAME_CHARS) {
      throw bad("%s has %d characters, limit %d", setting, count, MAX_NAME_CHARS);
    }
    if (!NAME.matcher(name).matches()) {
      throw bad("%s \"%s\" has a character outside A-Z a-z 0-9 ._:/@=+-", setting, name);
    }
  }
}
