package io.github.oncelog.client;

import java.util.Map;

/**
 * What a commit of a group's member, or its look for where to go on, says of it.
 *
 * @param number of the commit; not looked at where it only looks
 */
record CommitTerms(String memberId, long number, Map<TopicPartition, Long> ownerships) {}
