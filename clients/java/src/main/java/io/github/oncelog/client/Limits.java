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
    span(name, value, Duration.ofMillis(lowMs), Duration.ofMillis(Integer.MAX_VALUE));
  }

  static void span(String name, Duration value, Duration low, Duration high) {
    if (value.compareTo(low) < 0 || value.compareTo(high) > 0) {
      throw bad("%s must be from %s to %s, got %s", name, low, high, value);
    }
  }

  /** Refuses an argument that is no time. */
  static void time(String field, Duration value) {
    if (value.isNegative() || value.compareTo(Duration.ofMillis(Integer.MAX_VALUE)) > 0) {
      throw Detail.invalid(field, "%s must not be negative or above 24 days, got %s", field, value);
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
