package io.github.oncelog.client;

/** What a group has committed for a partition, and when, in ms since the Unix epoch. */
public record CommittedOffset(OffsetCommit commit, long commitMs) {}
