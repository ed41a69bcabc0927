package io.github.oncelog.client;

import java.util.Map;

/**
 * The member's part of a commit, or of a look at the offset to go on from.
 *
 * @param number of the commit; not looked at where it only looks
 */
record CommitTerms(String memberId, long number, Map<TopicPartition, Long> ownerships) {}
