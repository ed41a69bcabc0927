package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.oncelog.client.Admin.CleanupPolicy;
import io.github.oncelog.client.Admin.ExpectedOffsets;
import io.github.oncelog.client.Admin.TopicConfig;
import io.github.oncelog.client.Admin.TopicFormats;
import io.github.oncelog.client.proto.TopicInfo;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Settings of topics on their way to nodes and back. */
class AdminMessagesTest {
  private static final TopicConfig ALL =
      new TopicConfig(
          -1L,
          2L,
          3000,
          ExpectedOffsets.REQUIRED,
          TopicFormats.BOTH,
          CleanupPolicy.COMPACT,
          4L,
          5L,
          6L,
          0.25);

  @Test
  void eachSettingGoesToANodeAndComesBack() {
    TopicInfo message = TopicInfo.newBuilder().setConfig(AdminMessages.config(ALL)).build();
    assertEquals(ALL, AdminMessages.info(message).config());
  }

  @Test
  void eachSettingThatACallGivesTellsItsTopicFromAnothers() {
    List<TopicConfig> calls =
        List.of(
            new TopicConfig(-1L, null, null, null),
            new TopicConfig(null, 2L, null, null),
            new TopicConfig(null, null, 3000, null),
            new TopicConfig(null, null, null, ExpectedOffsets.REQUIRED),
            new TopicConfig(
                null, null, null, null, TopicFormats.BOTH, null, null, null, null, null),
            new TopicConfig(
                null, null, null, null, null, CleanupPolicy.COMPACT, null, null, null, null),
            new TopicConfig(null, null, null, null, null, null, 4L, null, null, null),
            new TopicConfig(null, null, null, null, null, null, null, 5L, null, null),
            new TopicConfig(null, null, null, null, null, null, null, null, 6L, null),
            new TopicConfig(null, null, null, null, null, null, null, null, null, 0.25));
    TopicConfig other =
        new TopicConfig(
            1L,
            1L,
            1000,
            ExpectedOffsets.CHECKED,
            TopicFormats.COLUMNAR,
            CleanupPolicy.DELETE,
            0L,
            -1L,
            1L,
            0.5);
    assertTrue(AdminMessages.fits(TopicConfig.DEFAULT, other));
    for (TopicConfig call : calls) {
      assertTrue(AdminMessages.fits(call, ALL), call.toString());
      assertFalse(AdminMessages.fits(call, other), call.toString());
    }
    assertTrue(AdminMessages.fits(calls.get(0), TopicConfig.DEFAULT), "a node may omit a default");
  }
}
