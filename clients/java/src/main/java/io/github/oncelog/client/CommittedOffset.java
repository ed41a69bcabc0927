package io.github.oncelog.client;

/** A group's committed offset of a partition, and its time, in ms since the Unix epoch. */
public record CommittedOffset(OffsetCommit commit, long commitMs) {}
