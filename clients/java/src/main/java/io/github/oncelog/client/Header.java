package io.github.oncelog.client;

/** A name with a value beside a record; a null value is not an empty one. */
public record Header(String key, byte[] value) {}
