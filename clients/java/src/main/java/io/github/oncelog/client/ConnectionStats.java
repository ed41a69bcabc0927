package io.github.oncelog.client;

import java.time.Duration;

/**
 * How a client's connection to the cluster has been since its start.
 *
 * @param outages how often no node answered for 5 s, or for {@link ClientConfig#requestTimeout()}
 *     if that is shorter
 * @param outage for how long that has been so by now; zero: a node answers
 */
public record ConnectionStats(long outages, Duration outage) {}
