package io.github.oncelog.client.driver;

import static io.github.oncelog.client.driver.Driver.flag;
import static io.github.oncelog.client.driver.Driver.has;
import static io.github.oncelog.client.driver.Driver.number;
import static io.github.oncelog.client.driver.Driver.partition;
import static io.github.oncelog.client.driver.Driver.strings;
import static io.github.oncelog.client.driver.Driver.text;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.github.oncelog.client.Admin;
import io.github.oncelog.client.CommittedOffset;
import io.github.oncelog.client.TopicPartition;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** The driver's verbs for nodes, moves, permissions, quotas and sinks' committed batches. */
final class Administration {
  private static final Gson WORDS =
      new GsonBuilder()
          .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
          .serializeNulls()
          .create();

  private Administration() {}

  static JsonObject carryOut(JsonObject command, Admin admin) {
    JsonObject answer = new JsonObject();
    switch (text(command, "verb")) {
      case "describe_cluster" -> {
        return table(admin.describeCluster());
      }
      case "list_nodes" -> answer.add("nodes", WORDS.toJsonTree(admin.listNodes()));
      case "change_node" -> {
        int node = (int) number(command, "node_id", 0);
        boolean dryRun = flag(command, "dry_run");
        List<String> effects =
            switch (text(command, "action")) {
              case "add" -> admin.addNode(node, dryRun);
              case "remove" -> admin.removeNode(node, dryRun);
              case "keep" -> admin.cancelNodeRemoval(node, dryRun);
              case "drain" -> admin.drainNode(node, dryRun);
              case "undrain" -> admin.undrainNode(node, dryRun);
              default -> {
                boolean acceptLoss = flag(command, "accept_loss");
                long directory = number(command, "directory_id", 0);
                yield admin.replaceNode(
                    node, new Admin.NodeReplacement(dryRun, acceptLoss, directory));
              }
            };
        answer.add("effects", WORDS.toJsonTree(effects));
      }
      case "balance" -> {
        return table(
            switch (has(command, "action") ? text(command, "action") : "describe") {
              case "plan" -> admin.planBalance();
              case "start" -> admin.startBalance();
              case "cancel" -> admin.cancelBalance();
              default -> admin.describeBalance();
            });
      }
      case "reassign_partition" -> {
        TopicPartition tp = partition(command);
        List<Integer> replicas = each(command, "replicas", JsonElement::getAsInt);
        var found = admin.reassignPartition(tp, replicas).partitions().get(tp.partition());
        answer.add("replicas", WORDS.toJsonTree(found.replicas()));
        answer.add("target", WORDS.toJsonTree(found.target()));
      }
      case "alter_permissions" -> {
        return table(
            admin.alterPermissions(
                each(command, "add", Administration::rule),
                each(command, "remove", Administration::rule)));
      }
      case "list_permissions" -> {
        return table(admin.listPermissions(text(command, "principal")));
      }
      case "check_permission" ->
          answer.addProperty(
              "allowed",
              admin.checkPermission(
                  text(command, "operation"),
                  text(command, "kind"),
                  text(command, "name"),
                  text(command, "principal")));
      case "alter_quotas" ->
          admin.alterQuotas(
              each(command, "set", one -> WORDS.fromJson(one, Admin.Quota.class)),
              each(command, "remove", one -> WORDS.fromJson(one, Admin.QuotaKey.class)));
      case "list_quotas" ->
          answer.add("quotas", WORDS.toJsonTree(admin.listQuotas(text(command, "principal"))));
      case "group_lag" -> {
        return lag(admin.groupLag(text(command, "group")));
      }
      case "delete_group" ->
          answer.addProperty("existed", admin.deleteGroup(text(command, "group")));
      case "list_sinks" -> {
        JsonArray sinks = new JsonArray();
        admin.listSinks().forEach(one -> sinks.add(sink(one)));
        answer.add("sinks", sinks);
      }
      case "describe_sink" -> {
        return sink(admin.describeSink(text(command, "sink")));
      }
      case "reset_sink" -> admin.resetSink(text(command, "sink"));
      default -> throw new Fault("NOT_OFFERED", "no such verb");
    }
    return answer;
  }

  private static JsonObject table(Object found) {
    return WORDS.toJsonTree(found).getAsJsonObject();
  }

  private static <T> List<T> each(
      JsonObject command, String name, Function<JsonElement, T> reader) {
    List<T> all = new ArrayList<>();
    if (has(command, name)) {
      command.getAsJsonArray(name).forEach(one -> all.add(reader.apply(one)));
    }
    return all;
  }

  private static Admin.PermissionRule rule(JsonElement one) {
    JsonObject rule = one.getAsJsonObject();
    return new Admin.PermissionRule(
        text(rule, "principal"),
        strings(rule.get("operations")),
        text(rule, "kind"),
        text(rule, "name"),
        flag(rule, "prefix"),
        flag(rule, "deny"));
  }

  private static JsonObject sink(Admin.SinkInfo found) {
    JsonObject answer = table(found);
    JsonArray committed = new JsonArray();
    found.committed().forEach(one -> committed.add(list(one.first(), one.last())));
    answer.add("committed", committed);
    if (found.before() != null) {
      Admin.SinkBefore before = found.before();
      answer.add("before", list(before.query(), before.batch(), before.recordCount()));
    }
    return answer;
  }

  private static JsonArray list(Object... values) {
    return WORDS.toJsonTree(values).getAsJsonArray();
  }

  private static JsonObject lag(Admin.GroupLag found) {
    JsonArray partitions = new JsonArray();
    found
        .partitions()
        .forEach(
            (tp, one) -> {
              JsonObject lag = new JsonObject();
              lag.addProperty("topic", tp.topic());
              lag.addProperty("partition", tp.partition());
              CommittedOffset committed = one.committed();
              lag.addProperty("committed", committed == null ? null : committed.commit().offset());
              lag.addProperty("log_start_offset", one.logStartOffset());
              lag.addProperty("high_watermark", one.highWatermark());
              lag.addProperty("lag", one.lag());
              lag.addProperty("error", one.error() == null ? null : one.error().kind().name());
              partitions.add(lag);
            });
    JsonObject answer = new JsonObject();
    answer.addProperty("lag", found.lag());
    answer.add("partitions", partitions);
    return answer;
  }
}
