package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Proxy;
import java.net.ProxySelector;
import java.net.SocketAddress;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Errors when nobody answers, and the ways of connections. */
class ConnectionTest {
  private final List<String> said = new ArrayList<>();
  private long now;

  @Test
  void oneWarningWhenNobodyAnswersAndOneWhenSomebodyDoesAgain() {
    Reachability one = new Reachability(Times.SECOND, () -> now, said::add);
    one.failed("a:1: refused");
    now += Times.SECOND - 1;
    one.failed("a:1: refused");
    assertEquals(List.of(), said);
    now++;
    one.failed("b:1: refused");
    now += Times.SECOND;
    one.failed("a:1: refused");
    assertEquals(
        List.of("no node has answered for 1 s, the client keeps trying: b:1: refused"), said);
    assertEquals(new ConnectionStats(1, Duration.ofSeconds(2)), one.stats());
    one.answered("a:1");
    one.answered("a:1");
    assertEquals("a:1 answers again, after 2 s", said.get(1));
    assertEquals(2, said.size());
    assertEquals(new ConnectionStats(1, Duration.ZERO), one.stats());
  }

  @Test
  void failuresThatLieFarApartAreNoOutage() {
    Reachability one = new Reachability(Times.SECOND, () -> now, said::add);
    for (int i = 0; i < 3; i++) {
      one.failed("a:1: refused");
      now += 11 * Times.SECOND;
    }
    assertEquals(List.of(), said);
  }

  @Test
  void theProxyOfTheJvmIsNotUsed() {
    List<URI> asked = Collections.synchronizedList(new ArrayList<>());
    ProxySelector before = ProxySelector.getDefault();
    ProxySelector.setDefault(
        new ProxySelector() {
          @Override
          public List<Proxy> select(URI uri) {
            asked.add(uri);
            return List.of(Proxy.NO_PROXY);
          }

          @Override
          public void connectFailed(URI uri, SocketAddress address, IOException e) {}
        });
    try (Admin admin =
        new Admin(new AdminConfig("127.0.0.1:1").requestTimeout(Duration.ofMillis(100)))) {
      assertTrue(assertThrows(OncelogException.class, admin::describeCluster).isRetriable());
      assertEquals(List.of(), asked);
    } finally {
      ProxySelector.setDefault(before);
    }
  }
}
